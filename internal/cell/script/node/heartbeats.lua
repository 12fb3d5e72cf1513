-- heartbeats: does what heartbeat.lua does, for several nodes that are connected through one
-- gateway.
--
-- Guarantee: as heartbeat.lua, node by node. It changes nothing of a node if a later connection of
-- the same epoch was heard, or if the node lives under another token. A node's key of another type
-- does not affect other nodes.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] nodes:index:online  set
-- Then four more for each node; for the first node they are
-- KEYS[4] nodes:<node>     hash   KEYS[5] load:<node>  string: the time of this heartbeat and the link
-- KEYS[6] slots:<node>     hash
-- KEYS[7] metrics:<node>   string: written with resources; without any, one of the others
-- ARGV[1] channel   ARGV[2] number of nodes, 1 to 32   ARGV[3] heartbeat limit, ms
-- ARGV[4..] for each node: node, epoch, status, link (node_link.go), last dispatch entry taken in or
--   '', resources or '', number of attempts that the agent holds, and these as 'job:attempt'
-- Returns {now, answer, ...}: for each node as heartbeat.lua; -3 for a stale connection; -6 if the
--   node lives under another token or as a direct agent; an error if a key of the node has another
--   type
-- Foreign keys: dispatch:<node> and index:heartbeats, of this cell.
-- dispatch:<node>, a stream, is not in KEYS because it often does not exist: while a hash slot
-- migrates Redis would refuse every call.
-- Redis 7.0. Cost: O(nodes + slots in use + attempts named). Five commands for a quiet heartbeat,
-- seven for another one of an idle node, and three for the call.
local KEYS, ARGV, call, try = KEYS, ARGV, redis.call, redis.pcall -- a global is looked up by its name each time
local revisions_key, version_key, online_key, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
-- include lib/at.lua
-- include lib/key.lua
local answers, k, mark = {at}, 4, nil
-- No job has this name. It comes first because it frees memory: if Redis refuses other writes for
-- lack of memory, it accepts those that follow.
try('HDEL', KEYS[6], '-')
for n = 1, tonumber(ARGV[2]) do
  local base = 4 * n
  local profile_key, load_key, slots_key, metrics_key = KEYS[base], KEYS[base + 1], KEYS[base + 2], KEYS[base + 3]
  local node, epoch, status, link, read, resources = ARGV[k], ARGV[k + 1], ARGV[k + 2], ARGV[k + 3], ARGV[k + 4], ARGV[k + 5]
  local first, last = k + 7, k + 6 + ARGV[k + 6]
  k = last + 1
  local profile = try('HMGET', profile_key, 'epoch', 'status')
  local text = call('MGET', load_key)[1] or ''
  local heard = string.match(text, '^%d%d%d%d%d%d%d%d%d%d%d%d%d') or '0'
  local before, holder = string.match(text, '^%d+ (%d+) %S+ %S+ (%S+)')
  local connection, token = string.match(link, '^(%d+) %S+ %S+ (%S+)')
  if profile.err then
    answers[n + 1] = profile
  elseif profile[1] ~= epoch then
    answers[n + 1] = profile[1] and -2 or -1
  elseif holder ~= token and at - heard <= tonumber(ARGV[3]) then
    answers[n + 1] = -6 -- the epoch proves nothing: everyone can read it
  elseif before and tonumber(before) > tonumber(connection) then
    answers[n + 1] = -3
  else
    local owned = try('HGETALL', slots_key)
    local trimmed = read ~= '' and not owned.err and try('XTRIM', key('dispatch', node), 'MINID', read)
    if owned.err or (type(trimmed) == 'table' and trimmed.err) then
      answers[n + 1] = owned.err and owned or trimmed
    else
      local load = at .. ' ' .. link
      -- include lib/beat.lua
      -- A replica of the previous release delivers to the node's own stream, which no gateway
      -- reads. The answer names the jobs in it.
      if type(answer) == 'table' and not string.find(link, '^%d+ %- ') then try('DEL', key('dispatch', node)) end
      answers[n + 1] = answer
    end
  end
end
return answers

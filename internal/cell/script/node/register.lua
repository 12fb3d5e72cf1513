-- register: makes a node known, or changes its profile.
--
-- Guarantee: idempotent by epoch (boot id): repeating a call changes only the time of the last
-- heartbeat. A new epoch takes the node over: the jobs of the old epoch go to their next attempts
-- in the same script, its slots become free and its dispatch stream starts empty, so nothing of an
-- earlier incarnation reaches the new one. An epoch whose profile was lost keeps the jobs that it
-- owns. A gateway takes over only the epoch that its agent knew of, and no epoch that lives under
-- another token. A later connection of the same epoch makes earlier ones stale.
--
-- KEYS[1] nodes:<node>           hash    profile
-- KEYS[2] load:<node>            string  deleted, the first heartbeat makes it: until then the node
--                                        was last heard at the profile's registered_at_ms. Behind a
--                                        gateway it is there at once, with the link
-- KEYS[3] slots:<node>           hash
-- KEYS[4] dispatch:<node>        stream
-- KEYS[5] nodes:index:online     set
-- KEYS[6] index:revision         zset
-- KEYS[7] version:nodes          hash
-- KEYS[8] finished               zset
-- KEYS[9] due zset   KEYS[10] waiting hash   KEYS[11] version:waiting string
-- KEYS[12] serves:<node>         string  marked with a change of the profile: see take.lua
-- KEYS[13] drained               set     of nodes that operators have drained: see drain.lua
-- KEYS[14] metrics:<node>        string  deleted with load:<node>
-- KEYS[15..] pool:<pool>:members set     one for each pool of the new profile
-- ARGV[1] node   ARGV[2] epoch   ARGV[3] channel   ARGV[4] profile as JSON, for the event
-- ARGV[5] max_concurrency   ARGV[6] pool_ids, JSON
-- ARGV[7] link as in node_link.go, '' for an agent that is connected to Redis itself; behind a link only:
--   ARGV[8] epoch that it replaces, '' for none   ARGV[9] heartbeat limit, ms
-- Then the profile's other fields and their values, JSON
-- Returns {revision, lost job, ...}; to a gateway {-2}: the node has another epoch than ARGV[8];
--   {-3}: there is a later connection of this epoch; {-6}: the node lives under another token
-- Foreign keys (jobs, replies, former pools) come from records of this cell.
-- Redis 7.0. Cost: O(jobs lost + pools). Eight commands for the new agent of an idle node.
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local due_key, waiting_key, waiting_version_key, serves_key, drained_key, metrics_key =
  KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local node, epoch, channel, body, max, pool_ids = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local link = ARGV[7]
local STATED = link == '' and 8 or 10 -- index in ARGV of the names and values of the profile's other fields
local POOLS = 15 -- the first of KEYS that is the member set of a pool
local call = redis.call -- looking it up each time would be a hundredth of the cost
-- include lib/clock.lua
-- include lib/stated.lua
local load = at
if link ~= '' then
  load = at .. ' ' .. link
  local text = call('MGET', load_key)[1]
  local last, holder = string.match(text or '', '^%d+ (%d+) %S+ %S+ (%S+)')
  local connection, token = string.match(link, '^(%d+) %S+ %S+ (%S+)')
  local known = before[1] and before[1] ~= 'import'
  if known then
    text = text or call('HGET', profile_key, 'registered_at_ms') or ''
    local heard = tonumber(string.match(text, '^%d%d%d%d%d%d%d%d%d%d%d%d%d') or '0')
    -- A direct agent has no token. The epoch proves nothing: everyone can read it.
    if holder ~= token and now - heard <= tonumber(ARGV[9]) then return {-6} end
  end
  if not taken and last and tonumber(last) > tonumber(connection) then return {-3} end
  if known and taken and before[1] ~= ARGV[8] then return {-2} end
end
if equal and not taken then
  call('SET', load_key, load)
  return {tonumber(call('HGET', version_key, 'revision')) or 0}
end
-- include lib/pools_left.lua
-- include lib/taken_over.lua
-- include lib/profile.lua
if taken and link ~= '' then call('SET', load_key, load) end
table.insert(lost, 1, revision)
return lost

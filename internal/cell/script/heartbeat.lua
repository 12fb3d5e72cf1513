-- heartbeat: proves that a node lives, takes in its figures, and compares what
-- the agent runs with what the node owns, in both directions.
--
-- Guarantee: changes nothing unless the caller's epoch is the registered one.
-- Never touches the tracked profile unless the status changes. Harmless when
-- repeated: the revision and the time move on, nothing else. The sum of slots in use
-- is counted anew, so that an edit by hand cannot leave slots lost or given twice.
--
-- KEYS[1] nodes:<node>      hash     KEYS[2] load:<node>       string, TTL
-- KEYS[3] slots:<node>      hash     KEYS[4] index:revision    zset
-- KEYS[5] index:heartbeats  zset     KEYS[6] version:nodes     hash
-- KEYS[7] dispatch:<node>   stream   KEYS[8] nodes:index:online set: both may be left
--   out, as most heartbeats need neither; one that needs them returns {-3}
-- ARGV[1] node              ARGV[2] epoch        ARGV[3] status, online or draining
-- ARGV[4] resources, JSON   ARGV[5] load TTL, ms ARGV[6] channel
-- ARGV[7] last dispatch entry taken in, '' for none or none since the last heartbeat:
--   older entries are trimmed
-- ARGV[8..] attempts that the agent holds, 'job:attempt'
-- Returns 'revision used', as text because that is what an answer costs least as;
--         {revision, used, {start}, {stop}, {cancel}} where there is anything in the
--         lists, which hold 'job:attempt';
--         -1 unknown node: register again;  -2 superseded by another epoch;
--         -3 nothing was done: call again with all keys
-- Redis 7.0. Cost: O(slots in use + attempts named); nine commands for an idle node.
local profile_key, load_key, slots_key, revisions_key, heartbeats_key, version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local dispatch_key, online_key
if #KEYS > 6 then dispatch_key, online_key = KEYS[7], KEYS[8] end
local node, epoch, status, resources, load_ttl, channel, read = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local profile = redis.call('HMGET', profile_key, 'epoch', 'status', 'max_concurrency')
if not profile[1] then return -1 end
if profile[1] ~= epoch then return -2 end
if not online_key and (profile[2] ~= status or read ~= '') then return -3 end
-- include lib/clock.lua
-- include lib/announce.lua

local used, sum, start, stop, cancel = 0, '0', nil, nil, nil
local owned, named = redis.call('HGETALL', slots_key), nil
if #ARGV > 7 or #owned > 2 or (#owned == 2 and owned[1] ~= 'sum') then
  start, stop, cancel, named = {}, {}, {}, {}
  for i = 8, #ARGV do named[ARGV[i]] = true end
end
local first = '1:' .. epoch .. ':' -- how nearly all values begin: what follows is the slots
for i = 1, #owned, 2 do
  local job, value = owned[i], owned[i + 1]
  if job == 'sum' then
    sum = value
  else
    local attempt, slots, mark
    if string.sub(value, 1, #first) == first then attempt, slots = '1', tonumber(string.sub(value, #first + 1)) end
    if not slots then attempt, slots, mark = string.match(value, '^(%d+):[^:]*:(%d+)(:?c?)$') end
    if attempt then
      local held = job .. ':' .. attempt
      used = used + tonumber(slots)
      if mark == ':c' then cancel[#cancel + 1] = held end
      if named[held] then named[held] = nil else start[#start + 1] = held end
    end
  end
end

-- First, because it frees memory: where Redis refuses other writes for lack of it,
-- this makes it take the ones that follow.
if read ~= '' then redis.call('XTRIM', dispatch_key, 'MINID', read) end
if tonumber(sum) ~= used then redis.call('HSET', slots_key, 'sum', used) end
local revision = announce('h', node, epoch, status, profile[3] or '0', used, resources)
if profile[2] ~= status then
  redis.call('HSET', profile_key, 'status', status, 'version', revision)
  redis.call(status == 'online' and 'SADD' or 'SREM', online_key, node)
end
redis.call('ZADD', heartbeats_key, at, node)
redis.call('SET', load_key, resources, 'PX', load_ttl)
if named then
  for held in pairs(named) do stop[#stop + 1] = held end
  if #start + #stop + #cancel > 0 then return {tonumber(revision), used, start, stop, cancel} end
end
return revision .. ' ' .. used

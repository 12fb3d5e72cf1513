-- heartbeat: proves that a node lives, takes in its figures, and compares what
-- the agent runs with what the node owns, in both directions.
--
-- Guarantee: changes nothing unless the caller's epoch is the registered one.
-- Never touches the tracked profile unless the status changes. Harmless when
-- repeated: the revision and the time move on, nothing else. The sum of slots in use
-- is counted anew, so that an edit by hand cannot leave slots lost or given twice.
--
-- KEYS[1] nodes:<node>      hash     KEYS[2] load:<node>       hash, TTL
-- KEYS[3] slots:<node>      hash     KEYS[4] dispatch:<node>   stream
-- KEYS[5] index:revision    zset     KEYS[6] index:heartbeats  zset
-- KEYS[7] version:nodes     hash     KEYS[8] nodes:index:online set
-- ARGV[1] node              ARGV[2] epoch        ARGV[3] status, online or draining
-- ARGV[4] resources, JSON   ARGV[5] load TTL, ms ARGV[6] channel
-- ARGV[7] last dispatch entry taken in, '' for none: older entries are trimmed
-- ARGV[8..] attempts that the agent holds, 'job:attempt'
-- Returns {1, revision, used, {start}, {stop}, {cancel}}; the lists hold 'job:attempt'
--         {-1} unknown node: register again;  {-2} superseded by another epoch
-- Redis 7.0. Cost: O(slots in use + attempts named).
local profile_key, load_key, slots_key, dispatch_key, revisions_key, heartbeats_key, version_key, online_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local node, epoch, status, resources, load_ttl, channel, read = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
-- include lib/clock.lua
-- include lib/announce.lua

local profile = redis.call('HMGET', profile_key, 'epoch', 'status', 'max_concurrency')
if not profile[1] then return {-1} end
if profile[1] ~= epoch then return {-2} end

local named = {}
for i = 8, #ARGV do named[ARGV[i]] = true end
local start, stop, cancel, used, sum = {}, {}, {}, 0, '0'
local owned = redis.call('HGETALL', slots_key)
for i = 1, #owned, 2 do
  local job, value = owned[i], owned[i + 1]
  local attempt, slots, mark = string.match(value, '^(%d+):[^:]*:(%d+)(:?c?)$')
  if attempt then
    local held = job .. ':' .. attempt
    used = used + tonumber(slots)
    if mark == ':c' then cancel[#cancel + 1] = held end
    if named[held] then named[held] = nil else start[#start + 1] = held end
  elseif job == 'sum' then
    sum = value
  end
end
for held in pairs(named) do stop[#stop + 1] = held end

-- First, because it frees memory: where Redis refuses other writes for lack of it,
-- this makes it take the ones that follow.
if read ~= '' then redis.call('XTRIM', dispatch_key, 'MINID', read) end
if tonumber(sum) ~= used then redis.call('HSET', slots_key, 'sum', used) end
local revision = announce('h', node, epoch, status, profile[3] or '0', used, resources)
if profile[2] ~= status then
  redis.call('HSET', profile_key, 'status', status, 'version', revision)
  redis.call(status == 'online' and 'SADD' or 'SREM', online_key, node)
end
redis.call('ZADD', heartbeats_key, now, node)
redis.call('HSET', load_key, 'resources', resources, 'last_heartbeat_ms', now, 'version', revision)
redis.call('PEXPIRE', load_key, load_ttl)
return {1, revision, used, start, stop, cancel}

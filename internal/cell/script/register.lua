-- register: makes a node known, or changes its profile.
--
-- Guarantee: idempotent by epoch (boot id): the same call again changes nothing but
-- the time of the last heartbeat. A new epoch takes the node over: the jobs of the
-- old one end in the same script, its slots are free and its dispatch stream starts
-- empty, so nothing of an earlier incarnation can reach the new one. An epoch whose
-- profile was lost keeps the jobs that it owns.
--
-- KEYS[1]  nodes:<node>           hash    profile
-- KEYS[2]  load:<node>            hash    with TTL
-- KEYS[3]  slots:<node>           hash
-- KEYS[4]  dispatch:<node>        stream
-- KEYS[5]  nodes:index:online     set
-- KEYS[6]  index:revision         zset
-- KEYS[7]  index:heartbeats       zset
-- KEYS[8]  version:nodes          hash
-- KEYS[9]  finished               zset
-- KEYS[10..] pool:<pool>:members  set     one for each pool of the new profile
-- ARGV[1]  node          ARGV[2]  epoch         ARGV[3]  generation, if none is set yet
-- ARGV[4]  channel       ARGV[5]  key prefix    ARGV[6]  tag part, ':{tag}' or ''
-- ARGV[7]  load TTL, ms  ARGV[8]  retention, ms ARGV[9]  failure of lost jobs, JSON
-- ARGV[10] max_concurrency   ARGV[11] profile as JSON, for the event
-- ARGV[12..] profile fields and values, in pairs; 'pool_ids' and 'max_concurrency' among them
-- Returns {revision, lost job, ...}
-- Foreign keys (jobs, replies, former pools) come from records of this cell.
-- Redis 7.0. Cost: O(jobs lost + pools).
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, heartbeats_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local node, epoch, channel, PREFIX, TAG = ARGV[1], ARGV[2], ARGV[4], ARGV[5], ARGV[6]
local load_ttl, retention, failure, max, body = ARGV[7], tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11]
local inline = 0
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/finish.lua
-- include lib/abandon.lua
-- include lib/pool.lua

local fields = {'epoch', 'pool_ids', 'status'}
for i = 12, #ARGV, 2 do fields[#fields + 1] = ARGV[i] end
local before = redis.call('HMGET', profile_key, unpack(fields))
local same = before[1] == epoch
for i = 4, #fields do same = same and before[i] == ARGV[2 * i + 5] end
if same then
  redis.call('ZADD', heartbeats_key, now, node)
  return {tonumber(redis.call('HGET', version_key, 'revision')) or 0}
end

local lost, used, status = {}, 0, 'online'
if before[1] == epoch then
  used = tonumber(redis.call('HGET', slots_key, 'sum')) or 0
  status = before[3] or status
else
  lost, used = abandon(slots_key, node, failure, epoch)
  forget()
  redis.call('DEL', dispatch_key, profile_key, load_key)
  redis.call('HSET', profile_key, 'registered_at_ms', now)
end

leave_pools(node, before[2])
for i = 10, #KEYS do redis.call('SADD', KEYS[i], node) end

redis.call('ZADD', heartbeats_key, now, node)
redis.call('HSETNX', version_key, 'generation', ARGV[3])
if redis.call('ZREM', revisions_key, '-' .. node) == 1 then
  redis.call('HINCRBY', version_key, 'tombstones', -1)
end
local revision = announce('r', node, epoch, status, max, used, body)
redis.call('HSET', profile_key, 'epoch', epoch, 'status', status, 'version', revision, unpack(ARGV, 12))
redis.call('HSET', load_key, 'last_heartbeat_ms', now, 'version', revision)
redis.call('PEXPIRE', load_key, load_ttl)
if status == 'online' then redis.call('SADD', online_key, node) end
table.insert(lost, 1, revision)
return lost

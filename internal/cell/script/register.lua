-- register: makes a node known, or changes its profile.
--
-- Guarantee: idempotent by epoch (boot id): the same call again changes nothing but
-- the time of the last heartbeat. A new epoch takes the node over: the jobs of the
-- old one end in the same script, its slots are free and its dispatch stream starts
-- empty, so nothing of an earlier incarnation can reach the new one. An epoch whose
-- profile was lost keeps the jobs that it owns. The epoch 'import' has no agent: its
-- node is draining, and takes no job before an agent takes it over.
--
-- KEYS[1]  nodes:<node>           hash    profile
-- KEYS[2]  load:<node>            string  with TTL: deleted, the first heartbeat makes it
-- KEYS[3]  slots:<node>           hash
-- KEYS[4]  dispatch:<node>        stream
-- KEYS[5]  nodes:index:online     set
-- KEYS[6]  index:revision         zset
-- KEYS[7]  index:heartbeats       zset
-- KEYS[8]  version:nodes          hash
-- KEYS[9]  finished               zset
-- KEYS[10..] pool:<pool>:members  set     one for each pool of the new profile
-- ARGV[1]  node          ARGV[2]  epoch         ARGV[3]  channel
-- ARGV[4]  key prefix    ARGV[5]  tag part, ':{tag}' or ''
-- ARGV[6]  retention, ms ARGV[7]  failure of lost jobs, JSON
-- ARGV[8]  profile as JSON, for the event
-- ARGV[9]  max_concurrency            ARGV[10] pool_ids, JSON   ARGV[11] capabilities, JSON
-- ARGV[12] installed_services, JSON   ARGV[13] labels, JSON     ARGV[14] features_supported, JSON
-- Returns {revision, lost job, ...}
-- Foreign keys (jobs, replies, former pools) come from records of this cell.
-- Redis 7.0. Cost: O(jobs lost + pools).
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, heartbeats_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local node, epoch, channel, PREFIX, TAG = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local retention, failure, body, max, pool_ids = tonumber(ARGV[6]), ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local inline = 0
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/here.lua
-- include lib/finish.lua
-- include lib/abandon.lua
-- include lib/pool.lua

-- before[3..8] are what ARGV[9..14] state.
local before = redis.call('HMGET', profile_key, 'epoch', 'status',
  'max_concurrency', 'pool_ids', 'capabilities', 'installed_services', 'labels', 'features_supported')
local taken, equal = before[1] ~= epoch, true
for i = 3, 8 do equal = equal and before[i] == ARGV[i + 6] end
if equal and not taken then
  redis.call('ZADD', heartbeats_key, at, node)
  return {tonumber(redis.call('HGET', version_key, 'revision')) or 0}
end

local left = {}
if before[4] ~= pool_ids then
  left = former_pools(before[4], {unpack(KEYS, 10)})
  here(profile_key, left)
end

local lost, used, status = {}, 0, epoch == 'import' and 'draining' or 'online'
if taken then
  lost, used = abandon(slots_key, node, failure, epoch, load_key, dispatch_key)
  if #lost > 0 then forget() end
else
  used = tonumber(redis.call('HGET', slots_key, 'sum')) or 0
  status = before[2] or status
end
redis.call('ZADD', heartbeats_key, at, node)
if before[4] ~= pool_ids then
  for _, members in ipairs(left) do redis.call('SREM', members, node) end
  for i = 10, #KEYS do redis.call('SADD', KEYS[i], node) end
end
if not before[1] and redis.call('ZREM', revisions_key, '-' .. node) == 1 then
  redis.call('HINCRBY', version_key, 'tombstones', -1)
end
local revision = announce('r', node, epoch, status, max, used, body)
if before[2] ~= status then redis.call(status == 'online' and 'SADD' or 'SREM', online_key, node) end
if taken and equal then
  redis.call('HSET', profile_key, 'epoch', epoch, 'status', status, 'version', revision, 'registered_at_ms', at)
elseif taken then
  -- What scripts read comes first: a small hash is searched from its beginning.
  redis.call('HSET', profile_key, 'epoch', epoch, 'status', status, 'max_concurrency', max, 'version', revision,
    'registered_at_ms', at, 'node_id', node, 'health', 'Online', 'pool_ids', pool_ids, 'capabilities', ARGV[11],
    'installed_services', ARGV[12], 'labels', ARGV[13], 'features_supported', ARGV[14])
else
  redis.call('HSET', profile_key, 'version', revision, 'max_concurrency', max, 'pool_ids', pool_ids, 'capabilities', ARGV[11],
    'installed_services', ARGV[12], 'labels', ARGV[13], 'features_supported', ARGV[14])
end
table.insert(lost, 1, revision)
return lost

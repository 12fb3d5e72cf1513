-- leave: takes a node out of the cell. Its jobs go to their next attempts, its keys are deleted,
-- and pools and indexes forget it. A tombstone (their number is bounded) informs replicas that were
-- away. pool_ids is the field of its profile, counted is true if a lost attempt is a failure, and
-- body is the event's body. This is not a function, because a script has only one node that leaves.
-- Needs: PREFIX, TAG, announce, at, body, counted, dispatch_key, due_key, epoch, failure,
--   finished_key, key, load_key, metrics_key, node, now, now_us, online_key, pool_ids,
--   profile_key, revisions_key, serves_key, slots_key, tombstones, version_key, waiting_key,
--   waiting_version_key
-- Defines: lost, revision
local lost
do
  local used = 0
  -- include lib/here.lua
  -- include lib/record.lua
  -- include lib/end_job.lua
  -- include lib/queue.lua
  -- include lib/limit.lua
  -- include lib/attempts.lua
  -- include lib/retry.lua
  -- include lib/abandon.lua
  -- include lib/pool.lua
  local pools = former_pools(pool_ids, {})
  here(profile_key, pools)
  lost = abandon(redis.call('HGETALL', slots_key), slots_key, node, failure, counted, '', profile_key, load_key, metrics_key,
    dispatch_key, serves_key)
  for _, members in ipairs(pools) do redis.call('SREM', members, node) end
end
redis.call('SREM', online_key, node)

local revision = announce('o', node, epoch, 'offline', '0', 0, body)
redis.call('ZADD', revisions_key, revision, '-' .. node)
redis.call('ZREM', revisions_key, node)
if redis.call('HINCRBY', version_key, 'tombstones', 1) > tombstones then
  -- Every heartbeat moves a living node away from the oldest entries. So only nodes that died in
  -- silence or have no agent can come before the oldest tombstone. Entries up to the floor were
  -- looked at before: there is no tombstone among them.
  local floor = tonumber(redis.call('HGET', version_key, 'floor') or '') or 0
  local first, dropped = 0, false
  repeat
    local oldest = redis.call('ZRANGE', revisions_key, string.format('(%.0f', floor), '+inf', 'BYSCORE', 'LIMIT', first, 100, 'WITHSCORES')
    for i = 1, #oldest, 2 do
      if string.sub(oldest[i], 1, 1) == '-' then
        redis.call('ZREM', revisions_key, oldest[i])
        redis.call('HSET', version_key, 'floor', oldest[i + 1])
        redis.call('HINCRBY', version_key, 'tombstones', -1)
        dropped = true
        break
      end
    end
    first = first + 100
  until dropped or #oldest == 0
end

-- leave: takes a node out of the cell. Its jobs go to their next attempts, its keys are deleted,
-- and pools and indexes forget it. A tombstone (their number is bounded) informs replicas that were
-- away. pool_ids is the field of its profile, counted is true if a lost attempt is a failure, and
-- body is the event's body. This is not a function, because a script has only one node that leaves.
-- Needs: PREFIX, TAG, announce, at, body, counted, dispatch_key, due_key, epoch, failure,
--   finished_key, key, load_key, metrics_key, node, now, now_us, online_key, pool_ids,
--   profile_key, revisions_key, serves_key, slots_key, tombstones, version_key, waiting_key,
--   waiting_version_key
-- Defines: lost, over, revision
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
redis.pcall('ZREM', PREFIX .. ':index:heartbeats' .. TAG, node) -- protected as in lib/quiet.lua; it is dropped later

local revision = announce('o', node, epoch, 'offline', '0', 0, body)
redis.call('ZADD', revisions_key, revision, '-' .. node)
redis.call('ZREM', revisions_key, node)
local over = redis.call('HINCRBY', version_key, 'tombstones', 1) - tombstones
if over > 0 then
  -- Living nodes whose heartbeats are quiet may come before the oldest tombstone, like those that
  -- died in silence. So a call looks at a thousand entries at most, and the next one goes on. Entries
  -- up to the floor were looked at before: there is no tombstone among them.
  local floor = tonumber(redis.call('HGET', version_key, 'floor') or '') or 0
  local looks = 0
  repeat
    local oldest = redis.call('ZRANGE', revisions_key, string.format('(%.0f', floor), '+inf', 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
    for i = 1, #oldest, 2 do
      floor = tonumber(oldest[i + 1])
      if string.sub(oldest[i], 1, 1) == '-' then
        redis.call('ZREM', revisions_key, oldest[i])
        redis.call('HINCRBY', version_key, 'tombstones', -1)
        over = over - 1
        if over == 0 then break end
      end
    end
    looks = looks + 1
  until over == 0 or #oldest == 0 or looks == 10
  redis.call('HSET', version_key, 'floor', string.format('%.0f', floor))
end

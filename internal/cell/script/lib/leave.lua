-- leave: takes a node out of the indexes and announces that, after its keys were deleted.
-- A tombstone of bounded history tells replicas that were away. pools are its member
-- sets. It is no function: a script has one node that leaves.
-- Needs: announce, epoch, node, online_key, pools, revisions_key, tombstones, version_key
-- Defines: revision
for _, members in ipairs(pools) do redis.call('SREM', members, node) end
redis.call('SREM', online_key, node)

local revision = announce('o', node, epoch, 'offline', '0', 0, '')
redis.call('ZADD', revisions_key, revision, '-' .. node)
redis.call('ZREM', revisions_key, node)
if redis.call('HINCRBY', version_key, 'tombstones', 1) > tombstones then
  -- Living nodes move away from the oldest entries with every heartbeat, so only nodes that died in silence, or have
  -- no agent, can come before the oldest tombstone. Those up to the floor were passed before: no tombstone is among them.
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

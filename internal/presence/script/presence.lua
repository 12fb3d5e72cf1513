-- presence: records that a replica runs with its heartbeat limit, and returns all that run.
--
-- Guarantee: a replica that has not repeated the call within the limit is dropped, by Redis' clock.
-- Harmless when repeated. Nothing is left once all replicas have been gone for that long.
--
-- KEYS[1] replicas  zset: replica -> when it last said so, ms
-- KEYS[2] replicas:heartbeat_limit  hash: replica -> its heartbeat limit, ms
-- ARGV[1] replica   ARGV[2] limit, ms   ARGV[3] '0' if it leaves   ARGV[4] its heartbeat limit, ms
-- Returns {replica, heartbeat limit, ...} of the running replicas, the caller among them unless it
--   leaves; in no order. The limit is '0' for a replica of an older release.
-- Redis 7.0. Cost: O(replicas).
local replicas_key, limits_key = KEYS[1], KEYS[2]
local replica, limit = ARGV[1], tonumber(ARGV[2])
-- include lib/clock.lua

redis.call('ZREMRANGEBYSCORE', replicas_key, '-inf', now - limit)
if ARGV[3] == '0' then
  redis.call('ZREM', replicas_key, replica)
  redis.call('HDEL', limits_key, replica)
else
  redis.call('ZADD', replicas_key, now, replica)
  redis.call('PEXPIRE', replicas_key, limit)
  redis.call('HSET', limits_key, replica, ARGV[4])
  redis.call('PEXPIRE', limits_key, limit)
end
local limits, out = {}, {}
local all = redis.call('HGETALL', limits_key)
for i = 1, #all, 2 do limits[all[i]] = all[i + 1] end
for _, name in ipairs(redis.call('ZRANGE', replicas_key, 0, -1)) do
  out[#out + 1], out[#out + 2], limits[name] = name, limits[name] or '0', nil
end
for name in pairs(limits) do redis.call('HDEL', limits_key, name) end
return out

-- presence: records that a replica runs, with its heartbeat limit and its figures, and returns all that run.
--
-- Guarantee: a replica that has not repeated the call within the limit is dropped, by Redis' clock.
-- Harmless when repeated. Nothing is left once all replicas have been gone for that long.
--
-- KEYS[1] replicas  zset: replica -> when it last said so, ms
-- KEYS[2] replicas:heartbeat_limit  hash: replica -> its heartbeat limit, ms; with a + before it if
--   the release reads heartbeats that have no event
-- KEYS[3] replicas:figures  hash: replica -> its figures, a binary text
-- ARGV[1] replica   ARGV[2] limit, ms   ARGV[3] '0' if it leaves   ARGV[4] its heartbeat limit, ms
-- KEYS[4] replicas:status  hash: replica -> its status, a text
-- ARGV[5] its figures   ARGV[6] its status, '' if it is as before
-- Returns {replica, heartbeat limit as in KEYS[2], when it last said so (ms), figures, ...} of the
--   running replicas, the caller among them unless it leaves; in no order. A replica of an older
--   release has '0' as its limit, or '' as its figures.
-- Redis 7.0. Cost: O(replicas).
local replicas_key, limits_key, figures_key, status_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local replica, limit = ARGV[1], tonumber(ARGV[2])
local STATUS_LIMIT = 60000 -- ms; a replica tells its status well within it
-- include lib/clock.lua

redis.call('ZREMRANGEBYSCORE', replicas_key, '-inf', now - limit)
if ARGV[3] == '0' then
  redis.call('ZREM', replicas_key, replica)
else
  redis.call('ZADD', replicas_key, now, replica)
  redis.call('PEXPIRE', replicas_key, limit)
end
-- noted records the caller's value in a hash, and returns the values of all. Those that are left in the
-- hash belong to replicas that are gone.
local function noted(key, value)
  if ARGV[3] == '0' then
    redis.call('HDEL', key, replica)
  else
    redis.call('HSET', key, replica, value)
    redis.call('PEXPIRE', key, limit)
  end
  local values, all = {}, redis.call('HGETALL', key)
  for i = 1, #all, 2 do values[all[i]] = all[i + 1] end
  return values
end
if ARGV[3] == '0' then
  redis.call('HDEL', status_key, replica)
elseif ARGV[6] ~= '' then
  redis.call('HSET', status_key, replica, ARGV[6])
  redis.call('PEXPIRE', status_key, STATUS_LIMIT)
end
local limits, figures, out = noted(limits_key, '+' .. ARGV[4]), noted(figures_key, ARGV[5]), {}
local all = redis.call('ZRANGE', replicas_key, 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local name, n = all[i], #out
  out[n + 1], out[n + 2], out[n + 3], out[n + 4] = name, limits[name] or '0', all[i + 1], figures[name] or ''
  limits[name], figures[name] = nil, nil
end
for name in pairs(limits) do redis.call('HDEL', limits_key, name) end
for name in pairs(figures) do
  redis.call('HDEL', figures_key, name)
  redis.call('HDEL', status_key, name)
end
return out

-- presence: says that a replica is there, and tells it of all that are.
--
-- Guarantee: who has not said so for as long as the limit is dropped, by Redis' clock.
-- Harmless when repeated. Nothing is left once all replicas have been gone for that long.
--
-- KEYS[1] replicas  zset: replica -> when it last said so, ms
-- ARGV[1] replica   ARGV[2] limit, ms   ARGV[3] '0' if it leaves
-- Returns the replicas that are there, whoever asks among them unless it leaves; their
-- order says nothing.
-- Redis 7.0. Cost: O(replicas).
local replicas_key = KEYS[1]
local replica, limit = ARGV[1], tonumber(ARGV[2])
-- include lib/clock.lua

redis.call('ZREMRANGEBYSCORE', replicas_key, '-inf', now - limit)
if ARGV[3] == '0' then
  redis.call('ZREM', replicas_key, replica)
else
  redis.call('ZADD', replicas_key, now, replica)
  redis.call('PEXPIRE', replicas_key, limit)
end
return redis.call('ZRANGE', replicas_key, 0, -1)

-- follow: records which version of the pools' configuration a replica follows: nothing that it
-- begins from now on uses an older one.
--
-- Guarantee: harmless when repeated. A replica that did not repeat it within the limit is dropped.
--
-- KEYS[1] version:followed  hash: replica -> version, generation, when (ms)
-- ARGV[1] replica   ARGV[2] version   ARGV[3] generation, '-' for none   ARGV[4] limit, ms
-- Returns 1
-- Redis 7.0. Cost: O(replicas).
local followed_key = KEYS[1]
local replica, version, generation, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- include lib/clock.lua

if redis.call('TYPE', followed_key).ok ~= 'hash' then redis.call('DEL', followed_key) end
redis.call('HSET', followed_key, replica, version .. ' ' .. generation .. ' ' .. at)
redis.call('PEXPIRE', followed_key, limit)
local all = redis.call('HGETALL', followed_key)
for i = 1, #all, 2 do
  if now - (tonumber(string.match(all[i + 1], ' (%d+)$') or '0')) > limit then redis.call('HDEL', followed_key, all[i]) end
end
return 1

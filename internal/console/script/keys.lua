-- keys: returns the keys that seal sessions, the newest first, and adds one if that is old.
--
-- Guarantee: replicas that call at the same time get the same keys. There are at most two.
--
-- KEYS[1] console:keys  list: when it was made (ms) and a key in hex, with a space between
-- ARGV[1] a new key, in hex, for the case that one is due   ARGV[2] age at which a key is old, ms
-- Returns the list
-- Redis 7.0. Cost: O(1).
local keys_key = KEYS[1]
local fresh, limit = ARGV[1], tonumber(ARGV[2])
-- include lib/clock.lua

local newest = redis.call('LINDEX', keys_key, 0)
local made = newest and tonumber(string.match(newest, '^(%d+) '))
if not made or now - made >= limit then
  redis.call('LPUSH', keys_key, at .. ' ' .. fresh)
  redis.call('LTRIM', keys_key, 0, 1)
end
return redis.call('LRANGE', keys_key, 0, 1)

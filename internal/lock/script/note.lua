-- note: notes which locks are held or awaited, so that operators can list them without a look at
-- all keys.
--
-- Guarantee: it changes no lock. An entry goes by itself unless it is noted again. Works when Redis
-- refuses writes for lack of memory, because its first write needs none.
--
-- KEYS[1] listed  zset, lock -> microseconds since 1970 at which its entry ends
-- ARGV[1], ARGV[2] and so on, for each lock: its name; how long its entry lasts, ms
-- Returns 1
-- Redis 7.0. Cost: O(locks * log(listed)).
-- include lib/clock.lua
local listed_key, longest = KEYS[1], 0
redis.call('ZREMRANGEBYSCORE', listed_key, '-inf', now_us)
for i = 1, #ARGV, 2 do
  local lasts = tonumber(ARGV[i + 1])
  longest = math.max(longest, lasts)
  -- Scores of one call differ, so that a page of the listing can end at any of them.
  redis.call('ZADD', listed_key, 'GT', string.format('%.0f', now_us + lasts * 1000 + i), ARGV[i])
end
if redis.call('PTTL', listed_key) < longest then redis.call('PEXPIRE', listed_key, longest) end
return 1

-- cron_used: reads how many schedules a tenant has, and how many bytes they take.
--
-- Guarantee: it changes nothing.
--
-- KEYS[1] cron  hash   KEYS[2] cron:index  zset
-- ARGV[1], ARGV[2] from and to, as ZRANGEBYLEX has them
-- Returns {schedules, bytes of their definitions}
-- Redis 7.0. Cost: O(log(N) + schedules of the tenant).
local names = redis.call('ZRANGEBYLEX', KEYS[2], ARGV[1], ARGV[2])
local bytes = 0
for _, name in ipairs(names) do bytes = bytes + redis.call('HSTRLEN', KEYS[1], name) end
return {#names, bytes}

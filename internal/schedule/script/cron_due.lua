-- cron_due: reads which schedules a replica must look at, now and soon.
--
-- Guarantee: it changes nothing.
--
-- KEYS[1] cron:due  zset
-- ARGV[1] how far ahead, ms   ARGV[2] most schedules
-- Returns {now, schedule, when (ms), ...}, earliest first
-- Redis 7.0. Cost: O(log(N) + schedules returned): two commands.
local cron_due_key = KEYS[1]
local ahead, most = tonumber(ARGV[1]), tonumber(ARGV[2])
-- include lib/clock.lua

local reply = {now}
local found = redis.call('ZRANGEBYSCORE', cron_due_key, '-inf', string.format('%.0f', now + ahead), 'WITHSCORES', 'LIMIT', 0, most)
for i = 1, #found do reply[i + 1] = found[i] end
return reply

-- clock: Redis' own time; every deadline in a script is compared with it. at is now as
-- text, for what is written: a number is converted anew for each command that gets it.
-- Lua writes whole numbers below 10^14 as they are.
local clock = redis.call('TIME')
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)
local at = now .. ''

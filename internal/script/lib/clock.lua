-- clock: Redis' own time. A script compares every deadline with it. Lua writes whole numbers below
-- 10^14 as they are.
-- Defines: at, clock, now, now_us
-- include lib/at.lua
local now_us = clock[1] * 1000000 + clock[2]
local now = math.floor(now_us / 1000)

-- at: Redis' own time in milliseconds, as text, for what is written: a number would be
-- converted anew for each command that gets it.
-- Defines: at, clock
local clock = redis.call('TIME')
local at = #clock[2] == 6 and clock[1] .. string.sub(clock[2], 1, 3) or clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))

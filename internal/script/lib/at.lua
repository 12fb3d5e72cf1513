-- at: Redis' own time in milliseconds, as text for writing: Lua would convert a number again for
-- each command.
-- Defines: at, clock
local clock = redis.call('TIME')
local at = #clock[2] == 6 and clock[1] .. string.sub(clock[2], 1, 3) or clock[1] .. string.format('%03d', math.floor(clock[2] / 1000))

-- clients: returns the live clients of a list: those that have reported within the last 15 s. It
-- removes clients that have been silent for a minute, and reports from the future.
--
-- Guarantee: liveness is judged by Redis' own clock.
--
-- KEYS[1] lists:clients:<list>  hash
-- Returns {at, client, ms since 1970, report...}
-- Redis 7.0. Cost: O(clients).
local clients_key = KEYS[1]
-- include lib/clock.lua
local reply, all = {at}, redis.call('HGETALL', clients_key)
for i = 1, #all, 2 do
  local ms, report = string.match(all[i + 1], '^(%d+) (.*)$')
  local silent = now - (tonumber(ms) or 0)
  if silent > 60000 or silent < -60000 then
    redis.call('HDEL', clients_key, all[i])
  elseif silent < 15000 then
    reply[#reply + 1] = all[i]
    reply[#reply + 1] = ms
    reply[#reply + 1] = report
  end
end
return reply

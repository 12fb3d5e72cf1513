-- clients: returns the live clients of a list: those that have reported within the last 15 s. It
-- removes clients that have been silent for a minute, and reports from the future.
--
-- Guarantee: liveness is judged by Redis' own clock. A client that has left is not live, but its last
-- report stays for the statistics.
--
-- KEYS[1] lists:clients:<list>  hash   KEYS[2] lists:readers:<list>  hash   KEYS[3] lists:reader_counts:<list>  hash
-- Returns {at, client, ms since 1970, report...}, where a client through a replica has its owner and a space before it
-- Redis 7.0. Cost: O(clients).
local clients_key, readers_key, counts_key = KEYS[1], KEYS[2], KEYS[3]
-- include lib/clock.lua
-- include lib/reader.lua
local reply = {at}
local function live(key, drop)
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local ms, report = string.match(all[i + 1], '^(%d+) (.*)$')
    local silent = now - (tonumber(ms or string.match(all[i + 1], '^left (%d+) ')) or 0)
    if silent > 60000 or silent < -60000 then
      drop(all[i])
    elseif ms and silent < 15000 then
      reply[#reply + 1] = all[i]
      reply[#reply + 1] = ms
      reply[#reply + 1] = report
    end
  end
end
live(clients_key, function(client) redis.call('HDEL', clients_key, client) end)
live(readers_key, function(reader) drop_reader(readers_key, counts_key, reader) end)
return reply

-- lacking: counts the live clients of a list that hold its serving version whole and lack the next
-- one.
--
-- Guarantee: it changes nothing. Liveness is judged by Redis' own clock.
--
-- KEYS[1] lists:clients:<list>  hash   KEYS[2] lists:readers:<list>  hash
-- ARGV[1] birth of the list   ARGV[2] number of the serving version, 0 without one   ARGV[3] number of the next one
-- Returns {processes with Redis, clients through replicas}
-- Redis 7.0. Cost: O(clients), about 1 us each.
local clients_key, readers_key = KEYS[1], KEYS[2]
local birth, serving, next = '"birth":"' .. ARGV[1] .. '"', ARGV[2], ARGV[3]
-- include lib/clock.lua
-- Reports are JSON that replicas and package namelist write. Within a text of it, a quote has a
-- backslash before it, so no text can hold one of these names with its quotes.
local function lacking(key)
  local n = 0
  for _, value in ipairs(redis.call('HVALS', key)) do
    local silent = now - (tonumber(string.match(value, '^(%d+) ')) or 0)
    if silent < 15000 and silent > -60000 and string.find(value, birth, 1, true) then
      local loaded = ',' .. (string.match(value, '"loaded":%[([%d,]*)%]') or '') .. ','
      local holds = serving == '0' or string.find(loaded, ',' .. serving .. ',', 1, true)
      if holds and string.match(value, '"serves":(%d+)') ~= next and not string.find(loaded, ',' .. next .. ',', 1, true) then
        n = n + 1
      end
    end
  end
  return n
end
return {lacking(clients_key), lacking(readers_key)}

-- stats_turn: names lists whose reports are due to be added up, and gives their turn to the caller.
-- It forgets the turns of lists that are gone.
--
-- Guarantee: of several replicas one gets the turn of a list. If more are due than fit, the ones that
-- have waited longest come first, so that each list has its turn. The time is Redis' own.
--
-- KEYS[1] lists:index  hash   KEYS[2] lists:stats_turns  hash
-- ARGV[1] ms between two turns of a list   ARGV[2] the most lists
-- Returns the lists
-- Redis 7.0. Cost: O(all lists), and O(n log n) for n that are due if they do not fit.
local index_key, turns_key, every, most = KEYS[1], KEYS[2], tonumber(ARGV[1]), tonumber(ARGV[2])
-- include lib/clock.lua
local turns, due = {}, {}
local all = redis.call('HGETALL', turns_key)
for i = 1, #all, 2 do turns[all[i]] = tonumber(all[i + 1]) or 0 end
for _, list in ipairs(redis.call('HKEYS', index_key)) do
  local silent = now - (turns[list] or 0)
  turns[list] = nil
  if silent >= every or silent < -every then due[#due + 1] = {math.abs(silent), list} end
end
if #due > most then table.sort(due, function(a, b) return a[1] > b[1] end) end
local taken = {}
for i = 1, math.min(#due, most) do
  taken[i] = due[i][2]
  redis.call('HSET', turns_key, taken[i], at)
end
for list in pairs(turns) do redis.call('HDEL', turns_key, list) end
return taken

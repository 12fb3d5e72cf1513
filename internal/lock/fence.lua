-- fence: refuses a holder whose token is lower than one seen before. It stands in front of the
-- caller's script, which follows where this one ends and gets the other KEYS and ARGV.
--
-- Guarantee: check and script are one step, and a refused token changes nothing.
--
-- KEYS[1] fence  string, the highest token seen   ARGV[1] the holder's token
-- Returns the error STALE for a lower token, else what the caller's script returns.
-- Redis 7.0. Cost: O(1), and the caller's script.
do
  local seen, token = redis.call('GET', KEYS[1]), ARGV[1]
  if seen and tonumber(seen) > tonumber(token) then
    return redis.error_reply('STALE token ' .. token .. ' is lower than ' .. seen .. ', which was seen before')
  end
  if seen ~= token then redis.call('SET', KEYS[1], token) end
  table.remove(KEYS, 1)
  table.remove(ARGV, 1)
end

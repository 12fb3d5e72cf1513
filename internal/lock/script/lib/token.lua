-- token: fencing tokens that only grow. A token is at least Redis' time in microseconds, so that
-- tokens grow even if the counter was deleted, or a failover lost its last values. The counter is
-- never below a token that was handed out: a call reserves one token per item, and another block if
-- that is not enough.
-- Needs: now_us, token_key, items
-- Defines: counter, given, next_token, stored
local stored = redis.pcall('GET', token_key) or '0'
local counter = tonumber(stored)
if not counter or counter < 0 or counter > 9e15 or counter % 1 ~= 0 then
  return redis.error_reply('BADKEY ' .. token_key .. ' is ' .. (stored.err or stored) .. ', expected a whole number')
end
local given = counter
local function next_token()
  if given == counter then
    given = math.max(counter + 1, now_us)
    counter = given + items - 1
    redis.call('SET', token_key, string.format('%.0f', counter))
  else
    given = given + 1
  end
  return string.format('%.0f', given)
end

-- token: fencing tokens that only grow. A token is at least Redis' microseconds, so that tokens grow even where
-- the counter was deleted, or a failover lost its last values. A call takes all of its tokens from the counter
-- before it hands out the first one.
-- Needs: now_us, token_key, items
-- Defines: counter, next_token
local stored = redis.call('GET', token_key) or '0'
local counter = tonumber(stored)
if not counter or counter < 0 or counter > 9e15 or counter % 1 ~= 0 then
  return redis.error_reply('BADKEY ' .. token_key .. ' is ' .. stored .. ', expected a whole number')
end
local given
local function next_token()
  if given then
    given = given + 1
  else
    given = math.max(counter + 1, now_us)
    counter = given + items - 1
    redis.call('SET', token_key, string.format('%.0f', counter))
  end
  return string.format('%.0f', given)
end

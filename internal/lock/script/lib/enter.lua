-- enter: puts a waiter's ticket into the queue of a lock, at its old place if the ticket was
-- dropped. place '0' means a new one, behind all others. length is the length of the queue. It
-- returns the place, or nil if the queue is full.
-- Needs: now_us, limit
-- Defines: enter, kept
-- kept is the queue whose TTL this call has extended last.
local kept
local function enter(queue_key, ticket, place, length)
  local score = redis.call('ZSCORE', queue_key, ticket)
  if not score then
    if length >= 10000 then return nil end
    score = place
    if place == '0' then
      local last = redis.call('ZRANGE', queue_key, -1, -1, 'WITHSCORES')[2]
      score = string.format('%.0f', math.max(now_us, (last or 0) + 1))
    end
    redis.call('ZADD', queue_key, score, ticket)
    kept = nil -- the key may be new
  end
  if kept ~= queue_key then
    redis.call('PEXPIRE', queue_key, 100 * limit)
    kept = queue_key
  end
  return string.format('%.0f', score)
end

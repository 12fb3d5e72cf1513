-- hand_over: gives a free lock to the first waiter that can take it. Such a waiter's process sent a
-- call within the liveness limit, and is subscribed to its wake channel. A killed process loses its
-- subscription at once; a stopped or cut-off one sends no calls. The ticket of a process that sends
-- no calls is dropped, and its next beat brings the ticket back to its old place. self needs no
-- subscription, since the answer of this call reaches it.
--
-- The new owner has 0.7 of the limit to claim the lock. Its ticket leaves the queue. If it still
-- waits after that time, its next beat brings the ticket back to its old place. If it does not, the
-- lock is not granted to it again. After that time its process counts as silent until its next
-- beat, also for its other tickets.
--
-- It returns true if the lock stays free and some tickets were not looked at: it looks at 64 at
-- most.
-- Needs: PREFIX, TAG, now, alive_key, limit, next_token, hold
-- Defines: hand_over
local function hand_over(name, held_key, queue_key, self)
  local tickets = redis.call('ZRANGE', queue_key, 0, 63)
  for _, ticket in ipairs(tickets) do
    local acquisition, process, number, lease, holder = string.match(ticket, '^((%w+):(%d+)) (%d+) (.*)$')
    local beat = acquisition and tonumber(redis.call('ZSCORE', alive_key, process) or nil)
    local live = beat and beat <= now and now - beat <= limit
    local token, receivers
    if live then
      -- A new token each time: a message that seemed to reach no one may arrive all the same.
      token = next_token()
      local channel = PREFIX .. ':wake' .. TAG .. ':' .. process
      receivers = redis.call('PUBLISH', channel, number .. ' ' .. token .. ' ' .. name)
    end
    if live and (receivers > 0 or process == self) then
      local window = math.floor(limit * 0.7)
      hold(held_key, acquisition, token, holder, lease, window, '1')
      redis.call('ZREM', queue_key, ticket)
      redis.call('ZADD', alive_key, 'LT', now + window - limit - 1, process)
      return false
    end
    if not live then redis.call('ZREM', queue_key, ticket) end
  end
  return #tickets == 64
end

-- hand_over: gives a free lock to the first waiter that can take it: its process sent a call within the liveness
-- limit, and is subscribed to its wake channel. A killed process has no subscription from that moment on; a
-- stopped or cut-off one sends no calls. A ticket without both is dropped. self may go without a subscription,
-- since the answer of this call reaches it.
-- The new owner has 0.7 of the limit to claim the lock. Returns the ticket's acquisition, or nil if the lock stays free.
-- Needs: PREFIX, TAG, now, alive_key, limit, next_token, hold
-- Defines: hand_over
local function hand_over(name, held_key, queue_key, self)
  local token
  for _, ticket in ipairs(redis.call('ZRANGE', queue_key, 0, 63)) do
    local acquisition, process, lease, holder = string.match(ticket, '^((%w+):%d+) (%d+) (.*)$')
    if not acquisition then
      redis.call('ZREM', queue_key, ticket)
    else
      local beat = tonumber(redis.call('ZSCORE', alive_key, process) or nil)
      local live = beat and beat <= now and now - beat <= limit
      local channel = PREFIX .. ':wake' .. TAG .. ':' .. process
      local message = ''
      if live then
        token = token or next_token()
        hold(held_key, acquisition, token, holder, lease, math.floor(limit * 0.7), '1')
        message = string.match(acquisition, '%d+$') .. ' ' .. token .. ' ' .. name
      end
      local receivers = redis.call('PUBLISH', channel, message)
      if live and (receivers > 0 or process == self) then return acquisition end
      if live then redis.call('DEL', held_key) elseif receivers == 0 then redis.call('ZREM', queue_key, ticket) end
    end
  end
end

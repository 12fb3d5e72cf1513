-- release: gives locks back, or takes waiters out of the queue, and hands each lock to its next owner.
--
-- Guarantee: only the named acquisition is ended, so a repeated call ends nothing else. Deleting
-- comes first, so that it works when Redis refuses writes for lack of memory.
--
-- KEYS[1] token  string   KEYS[2] alive  zset, process -> ms of its last call with a waiter
-- KEYS[1+2i], KEYS[2+2i] for item i: held:<lock> hash with TTL, queue:<lock> zset of tickets
-- ARGV[1] key prefix   ARGV[2] tag part   ARGV[3] process   ARGV[4] liveness limit, ms
-- ARGV[5..] for each item, eleven: lock; lock as JSON; number of the acquisition; its ticket, '' where it has never
--   waited; holder as JSON; reason; ms for which the lock stays taken, 0 for none; then of a waiter of the same process
--   its number, '' for none; 'now' if it gets the lock, 'queue' if it comes behind those that are in the queue; its
--   lease, ms; its holder
-- Returns {counter, item, ...}, counter not below any token so far, and for each item
--   {1, others, token or '', place or ''}  given back. others: tickets in the queue but that waiter's; token, of that
--                                          waiter if it got the lock; place, if it is in the queue
--   {0}                                    it did not hold the lock
--   {3, error}                             a key is no lock
-- The notice goes to the channel release:<lock>, for outsiders.
-- Redis 7.0. Cost: O(items * log(tickets)); up to 64 tickets are looked at for a lock that others wait for.
local token_key, alive_key = KEYS[1], KEYS[2]
local PREFIX, TAG, process, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local items = (#KEYS - 2) / 2
-- include lib/clock.lua
-- include lib/token.lua
-- include lib/hold.lua
-- include lib/hand_over.lua
-- include lib/enter.lua

local reply = {0}
for i = 1, items do
  local held_key, queue_key, from = KEYS[1 + 2 * i], KEYS[2 + 2 * i], 11 * i - 6
  local name, quoted, number, ticket = ARGV[from], ARGV[from + 1], ARGV[from + 2], ARGV[from + 3]
  local holder, reason, keep = ARGV[from + 4], ARGV[from + 5], tonumber(ARGV[from + 6])
  local heir, how, lease, heir_holder = ARGV[from + 7], ARGV[from + 8], ARGV[from + 9], ARGV[from + 10]
  local item = {0}
  local held, length = read_hold(held_key), redis.pcall('ZCARD', queue_key)
  if held and held.err then
    item = {3, held.err}
  elseif type(length) == 'table' then
    item = {3, queue_key .. ': ' .. length.err}
  else
    if ticket ~= '' and length > 0 then length = length - redis.call('ZREM', queue_key, ticket) end
    if held and held.acquisition == process .. ':' .. number then
      if keep > 0 then
        redis.call('PEXPIRE', held_key, keep)
        redis.call('HSET', held_key, 'acquisition', '-', 'grant', '')
      else
        redis.call('DEL', held_key)
      end
      local others, token, place = length, '', ''
      if heir ~= '' then
        local acquisition = process .. ':' .. heir
        local entry = acquisition .. ' ' .. lease .. ' ' .. heir_holder
        if length > 0 and redis.call('ZSCORE', queue_key, entry) then others = length - 1 end
        if keep <= 0 and (how == 'now' or others == 0) then
          token = next_token()
          hold(held_key, acquisition, token, heir_holder, lease, lease, '')
          if others < length then redis.call('ZREM', queue_key, entry) end
        else
          place = enter(queue_key, entry, '0', length) or ''
        end
      end
      if token == '' and keep <= 0 and others > 0 then hand_over(name, held_key, queue_key, '') end
      redis.call('PUBLISH', PREFIX .. ':release:' .. name, '{"lockKey":' .. quoted .. ',"releaseTime":' .. at ..
        ',"holder":' .. holder .. ',"token":"' .. held.token .. '","reason":"' .. reason .. '"}')
      item = {1, others, token, place}
    end
  end
  reply[1 + i] = item
end
reply[1] = string.format('%.0f', counter)
return reply

-- acquire: takes locks that are free, queues for those that are not, claims grants, and shows that
-- the process lives.
--
-- Guarantee: a lock has one acquisition at a time, and every grant gets a token above all earlier
-- ones. Repeating a call is harmless: an item that finds its own acquisition gets the same token,
-- and its lease starts anew. For acquisitions that have waited, it also works when Redis refuses
-- writes for lack of memory, because its first write needs none.
--
-- KEYS[1] token  string   KEYS[2] alive  zset, process -> ms of its last call with a waiter
-- KEYS[1+2i], KEYS[2+2i] for item i: held:<lock> hash with TTL, queue:<lock> zset of tickets
-- ARGV[1] key prefix   ARGV[2] tag part   ARGV[3] process   ARGV[4] liveness limit, ms
-- ARGV[5..] for each item: lock; number of the acquisition; lease, ms; holder; how: 't' tries once, 'w' waits,
--   in front of it 'f' for a fair one, which passes no waiter; its place in the queue, 0 before the first answer
-- Returns {counter, item, ...}, counter not below any token so far, and for each item
--   {1, token}                        taken, or claimed: held for a whole lease
--   {0, place, holder, since, left}   another acquisition holds it, or others come first; left in ms, -1 without TTL
--   {2}                               another acquisition holds it, and the queue is full
--   {3, error}                        a key is no lock
-- Redis 7.0. Cost: O(items * log(tickets)); up to 64 tickets are looked at for a lock that is found free.
local token_key, alive_key = KEYS[1], KEYS[2]
local PREFIX, TAG, process, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local items = (#KEYS - 2) / 2
-- include lib/clock.lua
-- include lib/token.lua
-- include lib/hold.lua
-- include lib/hand_over.lua
-- include lib/enter.lua

-- show records for others, once a call, that the process lives. It returns what is wrong with the
-- key, or nil.
local shown, wrong = false, nil
local function show()
  if not shown then
    shown = true
    local gone = redis.pcall('ZREMRANGEBYSCORE', alive_key, '-inf', now - 100 * limit)
    if type(gone) == 'table' then
      wrong = alive_key .. ': ' .. gone.err
    else
      redis.call('ZADD', alive_key, at, process)
      redis.call('PEXPIRE', alive_key, 100 * limit)
    end
  end
  return wrong
end

-- What was read of a lock that stays held serves all waiters of one call.
local seen = {}
local reply = {0}
for i = 1, items do
  local held_key, queue_key, from = KEYS[1 + 2 * i], KEYS[2 + 2 * i], 6 * i - 1
  local name, number, lease, holder, how, place = ARGV[from], ARGV[from + 1], ARGV[from + 2], ARGV[from + 3], ARGV[from + 4], ARGV[from + 5]
  local waits, fair = string.sub(how, -1) == 'w', string.sub(how, 1, 1) == 'f'
  local acquisition = process .. ':' .. number
  local ticket, item = acquisition .. ' ' .. lease .. ' ' .. holder, nil
  local before = seen[held_key]
  local held, length, failed = before and before.held or read_hold(held_key), 0, nil
  local mine = held and held.acquisition == acquisition
  if waits or fair then length = redis.pcall('ZCARD', queue_key) end
  if held and held.err then
    failed = held.err
  elseif type(length) == 'table' then
    failed = queue_key .. ': ' .. length.err
  elseif waits and (place ~= '0' or held and not mine or not held and fair and length > 0) then
    failed = show()
  end
  if failed then
    item = {3, failed}
  else
    -- A fair acquire, and one that has waited, heeds the order of the queue.
    if not held and length > 0 and (place ~= '0' or fair) then
      if waits then place = enter(queue_key, ticket, place, length) or place end
      local more = hand_over(name, held_key, queue_key, process)
      held = read_hold(held_key)
      if not held and more then item = {0, place, '', at, 1} end
    end
    if item then -- others come first
    elseif not held then
      local token = next_token()
      hold(held_key, acquisition, token, holder, lease, lease, '')
      if waits and length > 0 then redis.call('ZREM', queue_key, ticket) end
      item = {1, token}
    elseif held.acquisition == acquisition then
      seen[held_key] = nil
      redis.call('PEXPIRE', held_key, lease)
      if held.grant == '1' then redis.call('HSET', held_key, 'grant', '') end
      item = {1, held.token}
    else
      if waits then place = enter(queue_key, ticket, place, length) end
      before = before or {held = held, left = redis.call('PTTL', held_key)}
      seen[held_key] = before
      item = place and {0, place, held.holder, held.since, before.left} or {2}
    end
  end
  reply[1 + i] = item
end
reply[1] = string.format('%.0f', counter)
return reply

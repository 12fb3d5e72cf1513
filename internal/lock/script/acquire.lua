-- acquire: takes locks that are free, queues for those that are not, claims grants, and shows that the process lives.
--
-- Guarantee: a lock has one acquisition at a time, and every grant gets a token above all earlier ones. Repeating a
-- call is harmless: an item that finds its own acquisition gets the same token, and its lease starts anew.
--
-- KEYS[1] token  string   KEYS[2] alive  zset, process -> ms of its last call with a waiter
-- KEYS[1+2i], KEYS[2+2i] for item i: held:<lock> hash with TTL, queue:<lock> zset of tickets
-- ARGV[1] key prefix   ARGV[2] tag part   ARGV[3] process   ARGV[4] liveness limit, ms
-- ARGV[5..] for each item: lock; number of the acquisition; lease, ms; holder; how: 't' tries once, 'w' waits,
--   in front of it 'f' for a fair one, which passes no waiter; its place in the queue, 0 before the first answer
-- Returns {counter, item, ...}, counter not below any token so far, and for each item
--   {1, token}                                    taken, or claimed: held for a whole lease
--   {0, place, holder, since, left, token}        held by another one; left in ms, -1 without TTL
--   {2}                                           held by another one, and the queue is full
--   {3, error}                                    the key is no lock
-- Redis 7.0. Cost: O(items * log(tickets)); up to 64 tickets are looked at for a lock that is found free.
local token_key, alive_key = KEYS[1], KEYS[2]
local PREFIX, TAG, process, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local items = (#KEYS - 2) / 2
-- include lib/clock.lua
-- include lib/token.lua
-- include lib/hold.lua
-- include lib/hand_over.lua
-- include lib/enter.lua

local reply, shown = {0}, false
for i = 1, items do
  local held_key, queue_key, from = KEYS[1 + 2 * i], KEYS[2 + 2 * i], 6 * i - 1
  local name, number, lease, holder, how, place = ARGV[from], ARGV[from + 1], ARGV[from + 2], ARGV[from + 3], ARGV[from + 4], ARGV[from + 5]
  local acquisition = process .. ':' .. number
  local ticket, item = acquisition .. ' ' .. lease .. ' ' .. holder, nil
  local waits = how == 'w' or how == 'fw'
  local held = read_hold(held_key)
  if held and held.err then
    item = {3, held.err}
  else
    if waits and not shown then
      shown = true
      redis.call('ZADD', alive_key, at, process)
      redis.call('PEXPIRE', alive_key, 100 * limit)
    end
    -- A fair acquire, and one that has waited, heeds the order of the queue.
    if not held and (place ~= '0' or string.sub(how, 1, 1) == 'f') and redis.call('EXISTS', queue_key) == 1 then
      if waits then place = enter(queue_key, ticket, place) or place end
      if hand_over(name, held_key, queue_key, process) then held = read_hold(held_key) end
    end
    if not held then
      local token = next_token()
      hold(held_key, acquisition, token, holder, lease, lease, '')
      if place ~= '0' then redis.call('ZREM', queue_key, ticket) end
      item = {1, token}
    elseif held.acquisition == acquisition then
      redis.call('PEXPIRE', held_key, lease)
      if held.grant == '1' then
        redis.call('HSET', held_key, 'grant', '')
        redis.call('ZREM', queue_key, ticket)
      end
      item = {1, held.token}
    else
      if waits then place = enter(queue_key, ticket, place) end
      item = place and {0, place, held.holder, held.since, redis.call('PTTL', held_key), held.token} or {2}
    end
  end
  reply[1 + i] = item
end
reply[1] = string.format('%.0f', counter)
return reply

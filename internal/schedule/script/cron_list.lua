-- cron_list: reads schedules in the order of their names.
--
-- Guarantee: it changes nothing. It ends early rather than return much more than was asked for, but
-- returns at least one schedule if there is one.
--
-- KEYS[1] cron  hash   KEYS[2] cron:state  hash   KEYS[3] cron:index  zset
-- ARGV[1], ARGV[2] from and to, as ZRANGEBYLEX has them   ARGV[3] most schedules; 0: the one that ARGV[1] names
-- ARGV[4] most bytes
-- Returns {now, '1' if there are more, schedule, definition, state, ...}
-- Redis 7.0. Cost: O(log(N) + schedules returned).
local cron_key, cron_state_key, cron_index_key = KEYS[1], KEYS[2], KEYS[3]
local from, to, most, room = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
-- include lib/clock.lua

local names = {from}
if most > 0 then names = redis.call('ZRANGEBYLEX', cron_index_key, from, to, 'LIMIT', 0, most + 1) end
most = math.max(most, 1)
local reply = {now, '0'}
for i, name in ipairs(names) do
  if i > most or room <= 0 then
    reply[2] = '1'
    break
  end
  local definition, state = redis.call('HGET', cron_key, name) or '', redis.call('HGET', cron_state_key, name) or ''
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3] = name, definition, state
  room = room - #definition - #state
end
return reply

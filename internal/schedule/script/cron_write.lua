-- cron_write: makes, changes or deletes a schedule.
--
-- Guarantee: changes nothing unless the schedule's state is the one that the caller computed the
-- change from. No state comes twice, so a late or repeated call changes nothing. A schedule is in
-- all keys or in none, except that it is in cron:due only while a replica must look at it.
--
-- KEYS[1] cron  hash   KEYS[2] cron:state  hash   KEYS[3] cron:index  zset   KEYS[4] cron:due  zset
-- ARGV[1] schedule   ARGV[2] state that the caller saw ('' for none)   ARGV[3] state ('' deletes)
-- ARGV[4] definition ('' leaves it)   ARGV[5] when somebody must look at it, ms ('' for never)
-- Returns 1, or 0 if the state is another one
-- Redis 7.0. Cost: O(log(N)).
local cron_key, cron_state_key, cron_index_key, cron_due_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local schedule, seen, state, definition, due_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- include lib/sure.lua

-- A key that an operator gave another type has no schedules. The first write makes it anew.
if (sure('HGET', cron_state_key, schedule) or '') ~= seen then return 0 end
if state == '' then
  sure('HDEL', cron_key, schedule)
  redis.call('HDEL', cron_state_key, schedule)
  sure('ZREM', cron_index_key, schedule)
  sure('ZREM', cron_due_key, schedule)
  return 1
end
-- The first write is the one that Redis refuses when it is out of memory.
redis.call('HSET', cron_state_key, schedule, state)
if definition ~= '' then sure('HSET', cron_key, schedule, definition) end
sure('ZADD', cron_index_key, 0, schedule)
if due_at == '' then
  sure('ZREM', cron_due_key, schedule)
else
  sure('ZADD', cron_due_key, due_at, schedule)
end
return 1

-- stats_write: adds counts to the history of a list, and keeps what was counted of each client. It
-- removes reports of clients that have left.
--
-- Guarantee: it writes all, or nothing if another replica has written since the caller read. So
-- nothing is counted twice. Redis refuses the first write when it is out of memory.
--
-- KEYS[1] lists:history:<list>  hash   KEYS[2] lists:counted:<list>  hash   KEYS[3] lists:clients:<list>  hash
-- KEYS[4] lists:readers:<list>  hash   KEYS[5] lists:reader_counts:<list>  hash   KEYS[6] lists:index  hash
-- ARGV[1] list   ARGV[2] the history's field seq that the caller read, '' for none   ARGV[3] the new one
-- ARGV[4] how long what was counted lasts, ms
-- ARGV[5] how many of the following are of the history to set   ARGV[6] how many are of the history to remove
-- ARGV[7] how many are of counted to set   ARGV[8] how many are of counted to remove
-- ARGV[9..] fields and values in turns, or fields to remove; the last are reports to remove if they are the same
-- Returns 1 done, 3 another replica has written, or the list is gone
-- Redis 7.0. Cost: O(arguments).
local history_key, counted_key, clients_key, readers_key, counts_key, index_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local list, seq = ARGV[1], ARGV[2]
-- include lib/clock.lua
-- include lib/reader.lua
if (redis.call('HGET', history_key, 'seq') or '') ~= seq or redis.call('HEXISTS', index_key, list) == 0 then return 3 end
redis.call('HSET', history_key, 'seq', ARGV[3])
local from = 9
local function part(n)
  local first = from
  from = from + n
  return first, from - 1
end
local first, last = part(tonumber(ARGV[5]))
for i = first, last, 2 do redis.call('HSET', history_key, ARGV[i], ARGV[i + 1]) end
first, last = part(tonumber(ARGV[6]))
for i = first, last do redis.call('HDEL', history_key, ARGV[i]) end
first, last = part(tonumber(ARGV[7]))
for i = first, last, 2 do redis.call('HSET', counted_key, ARGV[i], ARGV[i + 1]) end
first, last = part(tonumber(ARGV[8]))
for i = first, last do redis.call('HDEL', counted_key, ARGV[i]) end
redis.call('PEXPIRE', counted_key, ARGV[4])
for i = from, #ARGV, 2 do
  local reader, report = ARGV[i], ARGV[i + 1]
  if redis.call('HGET', clients_key, reader) == report then redis.call('HDEL', clients_key, reader) end
  if redis.call('HGET', readers_key, reader) == report then drop_reader(readers_key, counts_key, reader) end
end
return 1

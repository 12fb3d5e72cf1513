-- report: keeps what a client has loaded and serves of some lists. Of a list that is not there it keeps nothing.
--
-- Guarantee: a report goes when its client has been silent for a minute. The time is Redis' own.
--
-- KEYS[1] lists:index  hash   KEYS[2..] lists:clients:<list>  hash, one for each
-- ARGV[1] client   ARGV[2..] for each list: its name, and the report as JSON
-- Returns when, in ms
-- Redis 7.0. Cost: O(lists).
local index_key, client = KEYS[1], ARGV[1]
-- include lib/at.lua
for i = 2, #KEYS do
  if redis.call('HEXISTS', index_key, ARGV[2 * i - 2]) == 1 then
    redis.call('HSET', KEYS[i], client, at .. ' ' .. ARGV[2 * i - 1])
    redis.call('PEXPIRE', KEYS[i], 60000)
  end
end
return at

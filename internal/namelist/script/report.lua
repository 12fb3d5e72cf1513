-- report: records what a client has loaded and serves of some lists. It ignores lists that do not
-- exist.
--
-- Guarantee: a report is removed when its client has been silent for a minute. The time is Redis'
-- own.
--
-- KEYS[1] lists:clients:<list>  hash   and so on
-- ARGV[1] client   ARGV[2] name of the hash lists:index: it is no key, because the user of a reader may not write it
-- ARGV[3..] for each list: its name, and the report as JSON; '' takes the client's report back, and 'left ' before it
--   leaves only what the client has counted
-- Returns when, in ms
-- Redis 7.0. Cost: O(lists).
local client, index_key = ARGV[1], ARGV[2]
-- include lib/at.lua
for i = 1, #KEYS do
  if ARGV[2 * i + 2] == '' then
    redis.call('HDEL', KEYS[i], client)
  elseif string.sub(ARGV[2 * i + 2], 1, 5) == 'left ' then
    redis.call('HSET', KEYS[i], client, 'left ' .. at .. string.sub(ARGV[2 * i + 2], 5))
    redis.call('PEXPIRE', KEYS[i], 60000)
  elseif redis.call('HEXISTS', index_key, ARGV[2 * i + 1]) == 1 then
    redis.call('HSET', KEYS[i], client, at .. ' ' .. ARGV[2 * i + 2])
    redis.call('PEXPIRE', KEYS[i], 60000)
  end
end
return at

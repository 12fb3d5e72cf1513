-- relay: records a report that came to a replica. It ignores lists that do not exist. If a tenant
-- has enough clients on a list, a further one is refused, unless it finds one that is silent.
--
-- Guarantee: a report is written under its owner, whom the caller has authenticated: no one changes
-- another owner's report. The number of a tenant's clients is the number of its fields. The time is
-- Redis' own.
--
-- KEYS[1] lists:index  hash
-- KEYS[2i] lists:readers:<list>  hash   KEYS[2i+1] lists:reader_counts:<list>  hash
-- ARGV[1] tenant   ARGV[2] owner and client with a space between   ARGV[3] the most clients of a tenant on a list
-- ARGV[4..] for each list: its name, and the report as JSON; '' takes the client's report back, and 'left ' before it
--   leaves only what the client has counted
-- Returns {at, name of each list whose report was refused}
-- Redis 7.0. Cost: O(lists); for a tenant with too many clients, at most each 5 s, O(clients of the list).
local index_key, tenant, reader, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
-- include lib/clock.lua
-- include lib/reader.lua
local reply = {at}
for i = 2, #KEYS, 2 do
  local readers_key, counts_key, list, report = KEYS[i], KEYS[i + 1], ARGV[i + 2], ARGV[i + 3]
  if report == '' then
    drop_reader(readers_key, counts_key, reader)
  elseif string.sub(report, 1, 5) == 'left ' then
    if redis.call('HEXISTS', readers_key, reader) == 1 then
      redis.call('HSET', readers_key, reader, 'left ' .. at .. string.sub(report, 5))
    end
  elseif redis.call('HEXISTS', index_key, list) == 1 then
    if redis.call('HSET', readers_key, reader, at .. ' ' .. report) == 1 and
      redis.call('HINCRBY', counts_key, tenant, 1) > most then
      local swept = tonumber(redis.call('HGET', counts_key, '')) or 0
      if math.abs(now - swept) >= 5000 then
        redis.call('HSET', counts_key, '', at)
        drop_silent(readers_key, counts_key, 15000)
      end
      if tonumber(redis.call('HGET', counts_key, tenant)) > most then
        drop_reader(readers_key, counts_key, reader)
        reply[#reply + 1] = list
      end
    end
    redis.call('PEXPIRE', readers_key, 60000)
    redis.call('PEXPIRE', counts_key, 60000)
  end
end
return reply

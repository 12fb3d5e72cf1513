-- due_sources: returns the lists whose sources are to be looked at.
--
-- Guarantee: it changes nothing.
--
-- KEYS[1] lists:sources  zset
-- ARGV[1] the most lists
-- Returns {at, list, since, ...}: when each list became due, ms; the longest due first
-- Redis 7.0. Cost: O(lists that are due).
local sources_key = KEYS[1]
-- include lib/at.lua
local reply = redis.call('ZRANGEBYSCORE', sources_key, '-inf', at, 'WITHSCORES', 'LIMIT', 0, tonumber(ARGV[1]))
table.insert(reply, 1, at)
return reply

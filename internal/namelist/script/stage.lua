-- stage: stores entries of an edit session, and renews its lease. A later entry of an id replaces
-- the earlier one.
--
-- Guarantee: all entries are staged, or none; none if the session is over. A repeated call changes
-- only the lease. Redis refuses the first write when it is out of memory.
--
-- KEYS[1] lists:record:<list>  hash   KEYS[2] lists:versions:<list>  hash   KEYS[3] lists:staged:<list>  hash
-- ARGV[1] operation id of the session   ARGV[2] lease, ms   ARGV[3] the most entries of a session
-- ARGV[4..] id and JSON of each entry, up to 1,000
-- Returns {1, at, entries staged, when the lease lapses in ms}, {3, at, head} the session is over, {5, at, entries} it has that many already
-- Redis 7.0. Cost: O(entries).
local record_key, versions_key, staged_key = KEYS[1], KEYS[2], KEYS[3]
local session, lease, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- include lib/clock.lua
-- include lib/head.lua
local is = redis.call('HMGET', record_key, 'state', 'op', 'lease')
if is[1] ~= 'editing' or is[2] ~= session or (tonumber(is[3]) or 0) <= now then return {3, at, head()} end
local before, new = redis.call('HLEN', staged_key), 0
for i = 4, #ARGV, 2 do new = new + 1 - redis.call('HEXISTS', staged_key, ARGV[i]) end
if before + new > limit then return {5, at, before} end
if #ARGV > 3 then redis.call('HSET', staged_key, unpack(ARGV, 4)) end
redis.call('HSET', record_key, 'lease', string.format('%.0f', now + lease))
return {1, at, before + new, now + lease}

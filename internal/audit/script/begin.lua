-- begin: records a change that is about to be made.
--
-- Guarantee: changes whose replica died before it recorded their end do not pile up. Once the hash
-- is large, each call moves some that are old to the stream, where they lack an outcome.
--
-- KEYS[1] audit:open  hash, or audit:own-open  hash: change -> when it began (ms), entry
-- KEYS[2] audit:changes  stream, or audit:own  stream: entry, capped
-- ARGV[1] change   ARGV[2] entry, a JSON object   ARGV[3] about how many entries the stream keeps
-- ARGV[4] age at which a change is old, ms
-- Returns 1
-- Redis 7.0. Cost: O(1).
local open_key, ended_key = KEYS[1], KEYS[2]
local change, entry, kept, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- include lib/clock.lua
local large, looked_at = 256, 16

redis.call('HSET', open_key, change, at .. ' ' .. entry)
if redis.call('HLEN', open_key) <= large then return 1 end
local some = redis.call('HRANDFIELD', open_key, looked_at, 'WITHVALUES')
for i = 1, #some, 2 do
  local began, old = string.match(some[i + 1], '^(%d+) (.*)$')
  if not began or now - tonumber(began) > limit then
    redis.call('HDEL', open_key, some[i])
    redis.call('XADD', ended_key, 'MAXLEN', '~', kept, '*', 'entry', old or some[i + 1])
  end
end
return 1

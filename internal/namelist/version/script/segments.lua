-- segments: replaces segments of one version.
--
-- Guarantee: a segment is replaced whole, with its seal. Repeating a call changes nothing. When
-- Redis is out of memory, the error comes before the first write.
--
-- Writes: scheduler:lists:{<list>_<version>_<segment>}
--
-- KEYS[1] lists:<segment>  hash   KEYS[2..] the same for further segments, which follow it; on a cluster there is one
-- ARGV[1] build id
-- ARGV[2..] for each segment: number of entries, then an id and its expiry (ms, '' for never) for each
-- Returns for each segment how many entries it has
-- Redis 7.0. Cost: O(entries * entries of a segment).
local KEYS, ARGV = KEYS, ARGV -- a global is looked up by its name each time
local build, at, reply = ARGV[1], 2, {}
redis.call('SET', KEYS[1], '') -- refused without memory; after a first write, such as DEL, Redis refuses no other one
for i = 1, #KEYS do
  local count = ARGV[at]
  local last = at + 2 * count
  redis.call('DEL', KEYS[i])
  if count == '0' then
    reply[i] = redis.call('HSET', KEYS[i], '', build .. ' 0') - 1
  else
    reply[i] = redis.call('HSET', KEYS[i], '', build .. ' ' .. count, unpack(ARGV, at + 1, last)) - 1
  end
  at = last + 1
end
return reply

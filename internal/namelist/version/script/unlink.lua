-- unlink: removes segments and blocks that one build has written.
--
-- Guarantee: keys of another build, and segments without a seal, stay.
--
-- Writes: scheduler:lists:{<list>_<version>_<segment>}
--
-- KEYS[1] lists:<segment>  hash, or lists:<block>  string   KEYS[2..] further ones; on a cluster there is one
-- ARGV[1] build id, 32 hexadecimal digits   ARGV[2] its 16 bytes
-- Returns how many were removed
-- Redis 7.0. Cost: O(keys); the memory is freed in the background.
local KEYS, build, bytes = KEYS, ARGV[1], ARGV[2]
local gone = {}
for i = 1, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind == 'hash' and string.sub(redis.call('HGET', KEYS[i], '') or '', 1, 33) == build .. ' ' or
    kind == 'string' and redis.call('GETRANGE', KEYS[i], 8, 23) == bytes then
    gone[#gone + 1] = KEYS[i]
  end
end
if #gone == 0 then return 0 end
return redis.call('UNLINK', unpack(gone))

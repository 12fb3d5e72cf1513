-- bulk_write: makes, changes or deletes an operation on many jobs or nodes.
--
-- Guarantee: changes nothing unless the operation's state is the one that the caller computed the
-- change from. No state comes twice, so a late or repeated call changes nothing.
--
-- KEYS[1] bulk  hash   KEYS[2] bulk:targets  hash
-- ARGV[1] operation   ARGV[2] state that the caller saw ('' for none)   ARGV[3] state ('' deletes)
-- ARGV[4] targets ('' leaves them)
-- Returns 1, or 0 if the state is another one
-- Redis 7.0. Cost: O(bytes of the targets): at most three commands.
local bulk_key, bulk_targets_key = KEYS[1], KEYS[2]
local operation, seen, state, targets = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/sure.lua

-- A key that an operator gave another type has no operations. The first write makes it anew.
if (sure('HGET', bulk_key, operation) or '') ~= seen then return 0 end
if state == '' then
  sure('HDEL', bulk_key, operation)
  sure('HDEL', bulk_targets_key, operation)
  return 1
end
-- Targets first: an operation without them would look as if it had none.
if targets ~= '' then sure('HSET', bulk_targets_key, operation, targets) end
redis.call('HSET', bulk_key, operation, state)
return 1

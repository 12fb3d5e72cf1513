-- bulk_read: reads one operation on many jobs or nodes and its targets, or all without targets.
--
-- Guarantee: it changes nothing.
--
-- KEYS[1] bulk  hash   KEYS[2] bulk:targets  hash
-- ARGV[1] operation ('' for all)
-- Returns texts: {now, state, targets} ('' where there is none), or {now, operation, state, ...}
-- Redis 7.0. Cost: O(bytes returned): at most three commands.
local bulk_key, bulk_targets_key = KEYS[1], KEYS[2]
local operation = ARGV[1]
-- include lib/clock.lua

now = string.format('%.0f', now)

if operation ~= '' then
  return {now, redis.call('HGET', bulk_key, operation) or '', redis.call('HGET', bulk_targets_key, operation) or ''}
end
local reply = {now}
for i, text in ipairs(redis.call('HGETALL', bulk_key)) do reply[i + 1] = text end
return reply

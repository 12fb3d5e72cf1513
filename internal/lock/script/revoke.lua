-- revoke: marks a held lock as revoked, so that its holder stops at its next check; or deletes it
-- at once, and then two holders may be at work for a while. Both are recorded in the audit stream.
--
-- Guarantee: it ends the hold with the token that was seen, and no other; without a token,
-- whichever hold there is. It grants the lock to no one: the next beat of a waiting process takes
-- it, in order, within a quarter of the liveness limit.
--
-- KEYS[1] held:<lock>  hash with TTL   KEYS[2] audit  stream, capped at about 1,000 entries
-- ARGV[1] lock   ARGV[2] the token that was seen, '' for any   ARGV[3] operator   ARGV[4] reason   ARGV[5] '1' deletes at once
-- Returns {1, token} done, {0} free, {2, token} held with another token than the one that was seen, {3, error}
-- Redis 7.0. Cost: O(1).
local held_key, audit_key, name, seen, delete = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[5]
-- include lib/at.lua
-- include lib/hold.lua
local held = read_hold(held_key)
if not held then return {0} end
if held.err then return {3, held.err} end
if seen ~= '' and held.token ~= seen then return {2, held.token} end
redis.call('XADD', audit_key, 'MAXLEN', '~', 1000, '*', 'lock', name, 'holder', held.holder, 'token', held.token,
  'operator', ARGV[3], 'reason', ARGV[4], 'now', delete)
if delete == '1' then
  redis.call('DEL', held_key)
else
  redis.call('HSET', held_key, 'revoked', ARGV[4])
end
return {1, held.token}

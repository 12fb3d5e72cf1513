-- revoke: marks a held lock as revoked, so that its holder stops at its next check; or deletes it at once, when two
-- holders may be at work for a while. Either is written into the audit stream.
--
-- Guarantee: it ends the acquisition that was seen and no other; without one, whichever holds the lock now.
--
-- KEYS[1] token  string   KEYS[2] alive  zset   KEYS[3] held:<lock>  hash with TTL   KEYS[4] queue:<lock>  zset
-- KEYS[5] audit  stream, capped at about 1,000 entries
-- ARGV[1] key prefix   ARGV[2] tag part   ARGV[3] liveness limit, ms   ARGV[4] lock
-- ARGV[5] the acquisition that was seen, '' for any   ARGV[6] operator   ARGV[7] reason   ARGV[8] '1' deletes at once
-- Returns {1} done, {0} free, {2, acquisition} held by another acquisition than the one that was seen, {3, error}
-- Redis 7.0. Cost: O(log(tickets)); up to 64 tickets.
local token_key, alive_key, held_key, queue_key, audit_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local PREFIX, TAG, limit, name, seen, now_or_ask = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[8]
local items = 1
-- include lib/clock.lua
-- include lib/token.lua
-- include lib/hold.lua
-- include lib/hand_over.lua
local held = read_hold(held_key)
if not held then return {0} end
if held.err then return {3, held.err} end
if seen ~= '' and held.acquisition ~= seen then return {2, held.acquisition} end
redis.call('XADD', audit_key, 'MAXLEN', '~', 1000, '*', 'lock', name, 'holder', held.holder, 'token', held.token,
  'operator', ARGV[6], 'reason', ARGV[7], 'now', now_or_ask)
if now_or_ask == '1' then
  redis.call('DEL', held_key)
  hand_over(name, held_key, queue_key, '')
else
  redis.call('HSET', held_key, 'revoked', ARGV[7])
end
return {1}

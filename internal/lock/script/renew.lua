-- renew: restarts the leases of held locks, and reads the state of each.
--
-- Guarantee: only the named acquisition is renewed, and a key that is gone is never made anew.
-- Works when Redis refuses writes for lack of memory, because PEXPIRE needs none.
--
-- KEYS[1] held:<lock>  hash with TTL, and so on, one an item
-- ARGV[1] to ARGV[4] and so on, for each item: acquisition; its token; lease, ms, 0 to look only; count of its entries
-- Returns for each item
--   {1, left}           renewed, which claims a grant, or only looked at; left in ms, -1 without TTL
--   {0}                 gone
--   {2, holder}         taken by another one, or again by this one: a late acquire made it anew
--   {4, reason}         an operator has revoked it; it is not renewed
--   {3, error}          the key is no lock
-- Redis 7.0. Cost: O(items), three commands each.
-- include lib/at.lua
-- include lib/hold.lua
local reply = {}
for i, held_key in ipairs(KEYS) do
  local acquisition, token, lease, count = unpack(ARGV, 4 * i - 3, 4 * i)
  local held = read_hold(held_key)
  if not held then
    reply[i] = {0}
  elseif held.err then
    reply[i] = {3, held.err}
  elseif held.acquisition ~= acquisition or held.token ~= token then
    reply[i] = {2, held.holder}
  elseif held.revoked then
    reply[i] = {4, held.revoked}
  elseif lease == '0' then
    reply[i] = {1, redis.call('PTTL', held_key)}
  else
    redis.call('PEXPIRE', held_key, lease)
    redis.call('HSET', held_key, 'count', count, 'grant', '')
    reply[i] = {1, tonumber(lease)}
  end
end
return reply

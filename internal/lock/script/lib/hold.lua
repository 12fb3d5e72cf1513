-- hold: reads and writes the hash of one lock. It is there while the lock is held.
-- Needs: at
-- Defines: hold, read_hold
-- read_hold returns nil for a free lock, or an error for a key that is no lock of this layout.
local function read_hold(held_key)
  local h = redis.pcall('HMGET', held_key, 'layout', 'acquisition', 'token', 'holder', 'since', 'grant', 'revoked')
  if h.err then return {err = 'BADKEY ' .. held_key .. ': ' .. h.err} end
  if not h[1] then return nil end
  if h[1] ~= '1' then return {err = 'BADKEY ' .. held_key .. ' has layout ' .. h[1] .. ', expected 1'} end
  return {acquisition = h[2], token = h[3], holder = h[4], since = h[5], grant = h[6], revoked = h[7]}
end
-- grant is '1' for a lock that its new owner has not claimed, else ''.
local function hold(held_key, acquisition, token, holder, lease, ttl, grant)
  if redis.call('HSET', held_key, 'layout', 1, 'acquisition', acquisition, 'count', 1, 'token', token,
    'since', at, 'lease', lease, 'holder', holder, 'grant', grant) ~= 8 then
    redis.call('HDEL', held_key, 'layout', 'acquisition', 'count', 'token', 'since', 'lease', 'holder', 'grant')
    error('BADKEY ' .. held_key .. ' is a hash of something else')
  end
  redis.call('PEXPIRE', held_key, ttl)
end

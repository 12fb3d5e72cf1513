-- hold: reads and writes the hash of one lock. The hash exists while the lock is held.
-- Needs: at
-- Defines: hold, read_hold
-- read_hold returns nil for a free lock, or {err = text} for a key that is not a lock of this
-- layout.
local function read_hold(held_key)
  local h = redis.pcall('HMGET', held_key, 'layout', 'acquisition', 'token', 'holder', 'since', 'grant', 'revoked')
  if h.err then return {err = held_key .. ': ' .. h.err} end
  if h[1] == '1' and h[2] and h[3] and h[4] and h[5] then
    return {acquisition = h[2], token = h[3], holder = h[4], since = h[5], grant = h[6], revoked = h[7]}
  end
  if not h[1] and redis.call('EXISTS', held_key) == 0 then return nil end
  return {err = held_key .. ' has layout ' .. (h[1] or 'none') .. ', expected a whole lock of layout 1'}
end
-- grant is '1' for a lock that its new owner has not claimed yet, else ''. Call it only for a free
-- lock.
local function hold(held_key, acquisition, token, holder, lease, ttl, grant)
  redis.call('HSET', held_key, 'layout', 1, 'acquisition', acquisition, 'count', 1, 'token', token,
    'since', at, 'lease', lease, 'holder', holder, 'grant', grant)
  redis.call('PEXPIRE', held_key, ttl)
end

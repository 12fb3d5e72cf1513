-- head: returns what consumers must know of a service.
-- Defines: head
local function head(record_key)
  local h = redis.call('HMGET', record_key, 'revision', 'stamp', 'birth', 'longest', 'why', 'guard_why')
  return {h[1] or '0', h[2] or '', h[3] or '', h[4] or '', h[5] or '', h[6] or ''}
end

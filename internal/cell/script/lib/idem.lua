-- idem: shortens the life of an idempotency key once its job has ended. idem is the field of that
-- name in the record: until when the key is kept (ms), and the end of its name. A key outlives its
-- job by a minute at least, because a late call may be on its way.
-- Needs: at, key
-- Defines: KEY_STAYS, release_key
local KEY_STAYS = 60000 -- ms
local function release_key(idem)
  local till, name = string.match(idem or '', '^(%d+) (%S+)$')
  -- Protected: the key may be on another server while a hash slot migrates. Then it stays longer.
  if name then redis.pcall('PEXPIRE', key('idem', name), string.format('%.0f', math.max(till - at, KEY_STAYS))) end
end

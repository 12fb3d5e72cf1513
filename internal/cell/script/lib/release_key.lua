-- release_key: shortens the life of an idempotency key once its job has ended. idem is the record's
-- field of that name: the time until which the key is kept (ms), and the end of its name. A key
-- outlives its job by at least a minute, because a late call may be on its way.
-- Needs: at, key
-- Defines: KEY_STAYS, release_key
local KEY_STAYS = 60000 -- ms
local function release_key(idem)
  local till, name = string.match(idem or '', '^(%d+) (%S+)$')
  -- Protected: the key may be on another server while a hash slot migrates. It then stays longer.
  if name then redis.pcall('PEXPIRE', key('idem', name), string.format('%.0f', math.max(till - at, KEY_STAYS))) end
end

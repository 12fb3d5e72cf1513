-- remove: takes instances out of a service. DEL comes first: when Redis refuses writes for lack of
-- memory, it accepts those that follow a DEL.
-- Needs: announce, at, changes_key, entry, heartbeats_key, next_revision, overrides_key, record_key, service,
--   services_key
-- Defines: remove
local function remove(ids, keys, reason, why)
  redis.call('DEL', unpack(keys))
  redis.call('ZREM', heartbeats_key, unpack(ids))
  for i, text in ipairs(redis.call('HMGET', overrides_key, unpack(ids))) do
    local ok, override = pcall(cjson.decode, text or '')
    if ok and type(override) == 'table' then
      override.gone_ms = tonumber(at)
      redis.call('HSET', overrides_key, ids[i], cjson.encode(override))
    end
  end
  local empty = redis.call('ZCARD', heartbeats_key) == 0
  local revision, entries = next_revision(empty and why or ''), {}
  for i, id in ipairs(ids) do entries[i] = entry(id, revision) end
  announce('removed', reason, revision, ids, entries)
  if empty then
    redis.call('SREM', services_key, service)
    redis.call('HDEL', record_key, 'longest', 'guard_until', 'guard_cut', 'guard_why', 'guard_done')
    for _, key in ipairs({record_key, changes_key, overrides_key}) do redis.call('PEXPIRE', key, 604800000) end
  end
  return revision
end

-- touch: gives instances the next revision of their service, and publishes their content. It
-- returns the revision, or nil if none of them exists.
-- Needs: announce, entry, next_revision, overrides_key
-- Defines: touch
local function touch(ids, keys, reason)
  local there, all, entries, revision = {}, {}, {}, nil
  for i, key in ipairs(keys) do
    if redis.call('HEXISTS', key, 'epoch') == 1 then
      revision = revision or next_revision('')
      redis.call('HSET', key, 'revision', revision)
      there[#there + 1] = ids[i]
      all[#all + 1] = redis.call('HGETALL', key)
    end
  end
  if not revision then return nil end
  local overrides = redis.call('HMGET', overrides_key, unpack(there))
  for i, id in ipairs(there) do entries[i] = entry(id, revision, all[i], overrides[i]) end
  announce('updated', reason, revision, there, entries)
  return revision
end

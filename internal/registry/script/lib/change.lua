-- change: gives a service the next revision, and publishes what has changed in it. Every change
-- that consumers see goes through next_revision, then entry for each instance, then announce. why
-- says why the service is empty, '' if it is not. fields is nil for an instance that is gone.
-- Needs: at, change_channel, changes_key, publish, record_key, service, stamp
-- Defines: announce, entry, next_revision
local function next_revision(why)
  local revision = redis.call('HINCRBY', record_key, 'revision', 1)
  if revision == 1 then
    redis.call('HSET', record_key, 'stamp', stamp, 'why', why, 'birth', stamp)
  else
    redis.call('HSET', record_key, 'stamp', stamp, 'why', why)
  end
  return revision
end
local function entry(id, revision, fields, override)
  return '{"id":' .. cjson.encode(id) .. ',"revision":' .. revision .. ',"fields":' .. (fields and cjson.encode(fields) or '[]') ..
    ',"override":' .. cjson.encode(override or '') .. '}'
end
local function announce(kind, reason, revision, ids, entries)
  local changed = {}
  for i, id in ipairs(ids) do changed[2 * i - 1], changed[2 * i] = revision, id end
  redis.call('ZADD', changes_key, unpack(changed))
  local over = redis.call('ZCARD', changes_key) - 10000
  if over > 0 then
    local dropped = redis.call('ZPOPMIN', changes_key, over)
    redis.call('HSET', record_key, 'floor', dropped[#dropped])
  end
  local birth = redis.call('HGET', record_key, 'birth') or ''
  publish(change_channel, '{"serviceName":"' .. service .. '","changeType":"' .. kind .. '","instances":' .. cjson.encode(ids) ..
    ',"timestamp":' .. at .. ',"revision":' .. revision .. ',"stamp":"' .. stamp .. '","birth":"' .. birth ..
    '","reason":"' .. reason .. '","entries":[' .. table.concat(entries, ',') .. ']}')
end

-- document: what the scripts of named documents share: a record with the newest version, and a
-- history of versions. A version number is never used twice while the record exists, which outlives
-- its document by 7 days.
-- Needs: history_key, now, record_key
-- Defines: document_version, document_versions, drop_document, live_version, put_document
local function document_versions()
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', history_key)) do
    if string.find(field, '^%d+$') then found[#found + 1] = tonumber(field) end
  end
  table.sort(found)
  return found
end

-- document_version returns the version of the record, whether there is a document, and the newest
-- version of the history.
local function document_version()
  local found = document_versions()
  local version = tonumber(redis.call('HGET', record_key, 'version')) or 0
  return version, redis.call('HEXISTS', record_key, 'content') == 1, found[#found] or 0
end

local function live_version(version, live) return live and version or 0 end

-- put_document writes a version, and drops surplus ones: it keeps at most that many versions and
-- bytes, and at least one version. Redis refuses the first write when it is out of memory.
local function put_document(version, content, author, note, restores, kept, room)
  redis.call('HSET', record_key, 'version', string.format('%.0f', version), 'content', content, 'author', author, 'note', note,
    'at', string.format('%.0f', now), 'restores', string.format('%.0f', restores))
  redis.call('PERSIST', record_key)
  redis.call('HSET', history_key, string.format('%.0f', version), content, string.format('%.0f:meta', version),
    cjson.encode({author = author, note = note, at_ms = now, restores = restores, bytes = #content}))
  local before, taken, fits = document_versions(), 0, true
  for i = #before, 1, -1 do -- from the newest on, while there is room
    local field = string.format('%.0f', before[i])
    taken = taken + redis.call('HSTRLEN', history_key, field)
    fits = fits and taken <= room and #before - i < kept
    if not fits then redis.call('HDEL', history_key, field, field .. ':meta') end
  end
end

local function drop_document()
  redis.call('HDEL', record_key, 'content', 'author', 'note', 'restores', 'at')
  redis.call('PEXPIRE', record_key, 604800000)
  redis.call('DEL', history_key)
end

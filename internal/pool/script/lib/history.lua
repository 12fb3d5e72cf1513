-- Shared by the scripts that change the dynamic configuration: its document, its versions and its
-- history.
-- Needs: config_channel, history_key, kept, now, paused_key, version_key
-- Defines: count, document, kind, next_version, paused_now, remember, tell, versions, with
local function kind(key) return redis.call('TYPE', key).ok end
local function with(object, fields) return string.sub(object, 1, -2) .. (object == '{}' and '' or ',') .. fields .. '}' end
local function document(content, version) return with(content, string.format('"version":%.0f', version)) end

-- paused_now: returns what is paused, a JSON object; '{}' if nothing is paused, '' if an operator
-- broke it.
local function paused_now()
  local is = kind(paused_key)
  if is == 'none' then return '{}' end
  local text = is == 'string' and redis.call('GET', paused_key) or ''
  return string.find(text, '^{.*}$') and pcall(cjson.decode, text) and text or ''
end

local function versions()
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', history_key)) do
    local version = tonumber(string.match(field, '^(%d+)$') or string.match(field, '^(%d+):meta$'))
    if version then found[#found + 1] = version end
  end
  table.sort(found)
  return found
end

-- next_version: returns the version of a change. After a lost counter it continues after the newest
-- version in the history.
local function next_version(version)
  if version == 0 and kind(history_key) == 'hash' then version = versions()[#versions()] or 0 end
  return version + 1
end

local function count(version, seen, generation)
  if kind(version_key) ~= 'hash' or seen == 0 then redis.call('DEL', version_key) end
  redis.call('HSET', version_key, 'revision', string.format('%.0f', version), 'generation', generation)
end

-- remember: enters a version into the history. content is nil without a document. Older releases
-- ignore fields of an entry that they do not know.
local function remember(version, content, meta, paused)
  if kind(history_key) ~= 'hash' then redis.call('DEL', history_key) end
  local about = with(meta, string.format('"paused":%s,"version":%.0f,"at_ms":%.0f', paused, version, now))
  redis.call('HSET', history_key, string.format('%.0f:meta', version), about)
  if content then redis.call('HSET', history_key, string.format('%.0f', version), content) end
  if redis.call('HLEN', history_key) > 2 * kept then
    local oldest = version - kept
    for _, old in ipairs(versions()) do
      if old <= oldest then redis.call('HDEL', history_key, string.format('%.0f', old), string.format('%.0f:meta', old)) end
    end
  end
end

local function tell(version)
  redis.call('PUBLISH', config_channel, string.format(
    '{"event_type":"phase3_config_update","config_type":"phase3","version":%.0f,"timestamp_ms":%.0f}', version, now))
end

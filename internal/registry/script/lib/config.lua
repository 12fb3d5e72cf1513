-- config: helpers that the scripts of named documents share.
-- Needs: change_channel, history_key, name, now, publish, record_key
-- Defines: config_version, live_version, tell_config, versions
local function versions()
  local found = {}
  for _, field in ipairs(redis.call('HKEYS', history_key)) do
    if string.find(field, '^%d+$') then found[#found + 1] = tonumber(field) end
  end
  table.sort(found)
  return found
end

-- config_version returns the version of the record, whether there is a document, and the newest
-- version of the history.
local function config_version()
  local found = versions()
  local version = tonumber(redis.call('HGET', record_key, 'version')) or 0
  return version, redis.call('HEXISTS', record_key, 'content') == 1, found[#found] or 0
end

local function live_version(version, live) return live and version or 0 end

local function tell_config(version, deleted)
  publish(change_channel, cjson.encode({name = name, version = version, deleted = deleted, at_ms = now}))
end

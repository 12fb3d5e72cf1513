-- config_apply: makes a configuration the one in force, as a new version, with the index
-- of language pairs that follows from it and an entry in the history.
--
-- Guarantee: of several callers that saw the same version one wins. What is in force
-- already, pairs included, changes nothing, so the same call again is harmless. A
-- lost counter gets a new generation, and goes on behind the newest version of the history. A key of
-- the wrong type is replaced. The first write is one that Redis refuses when it is out of memory.
--
-- KEYS[1] config:phase3      string   KEYS[2] version:config  hash
-- KEYS[3] version:index      string   KEYS[4] index:lang_pairs hash
-- KEYS[5] config:history     hash: <version> and <version>:meta
-- ARGV[1] version that the caller saw (0 = none)   ARGV[2] generation, if none is set yet
-- ARGV[3] configuration as a JSON object without 'version', not empty
-- ARGV[4] who and why, a JSON object, not empty
-- ARGV[5] config_channel   ARGV[6] versions kept in the history
-- ARGV[7..] language pairs and their pools, in pairs
-- Returns {status, version, generation, now (ms)}; status 1 applied, 0 in force already, -1 the version
-- is another one, which is returned
-- Redis 7.0. Cost: O(language pairs + versions kept).
local config_key, version_key, index_key, pairs_key, history_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local seen, generation, content, meta, config_channel, kept = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
-- include lib/clock.lua
-- include lib/config.lua

local function kind(key) return redis.call('TYPE', key).ok end
local function with(object, fields) return string.sub(object, 1, -2) .. ',' .. fields .. '}' end
local function document(version) return with(content, string.format('"version":%.0f', version)) end

local function same_pairs()
  if kind(pairs_key) ~= 'hash' then return #ARGV == 6 and kind(pairs_key) == 'none' end
  if redis.call('HLEN', pairs_key) ~= (#ARGV - 6) / 2 then return false end
  for i = 7, #ARGV, 2 do
    if redis.call('HGET', pairs_key, ARGV[i]) ~= ARGV[i + 1] then return false end
  end
  return true
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

local version, current = config_counter()
local same = same_pairs()
if version > 0 and same and kind(config_key) == 'string' and redis.call('GET', config_key) == document(version) then
  return {0, version, current, now}
end
if version ~= seen then return {-1, version, current, now} end

if version == 0 then
  current = generation
  if kind(history_key) == 'hash' then version = versions()[#versions()] or 0 end
end
version = version + 1
redis.call('SET', config_key, document(version))
if kind(version_key) ~= 'hash' or seen == 0 then redis.call('DEL', version_key) end
redis.call('HSET', version_key, 'revision', string.format('%.0f', version), 'generation', current)

if not same or kind(index_key) ~= 'string' then
  -- Never emptied before it is filled: a key that is gone cannot be made again on a server
  -- that its hash slot is about to leave.
  local wanted, stale = {}, kind(pairs_key) == 'hash' and redis.call('HKEYS', pairs_key) or {}
  if #stale == 0 or #ARGV == 6 then redis.call('DEL', pairs_key) end
  for i = 7, #ARGV, 2 do wanted[ARGV[i]] = true end
  for i = 7, #ARGV, 1000 do redis.call('HSET', pairs_key, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
  for _, pair in ipairs(stale) do
    if not wanted[pair] then redis.call('HDEL', pairs_key, pair) end
  end
  redis.call('SET', index_key, string.format('%.0f', version))
end

if kind(history_key) ~= 'hash' then redis.call('DEL', history_key) end
local at = string.format('"version":%.0f,"at_ms":%.0f', version, now)
redis.call('HSET', history_key, string.format('%.0f', version), content, string.format('%.0f:meta', version), with(meta, at))
if redis.call('HLEN', history_key) > 2 * kept then
  local oldest = version - kept
  for _, old in ipairs(versions()) do
    if old <= oldest then redis.call('HDEL', history_key, string.format('%.0f', old), string.format('%.0f:meta', old)) end
  end
end

redis.call('PUBLISH', config_channel, string.format(
  '{"event_type":"phase3_config_update","config_type":"phase3","version":%.0f,"timestamp_ms":%.0f}', version, now))
return {1, version, current, now}

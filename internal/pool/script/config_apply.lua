-- config_apply: puts a configuration in force as a new version, with the index of language pairs
-- that follows from it and an entry in the history.
--
-- Guarantee: of several callers that saw the same version, one wins. If the configuration, its
-- pairs and its pauses are in force already, nothing changes, so repeating a call is harmless. A
-- lost counter gets a new generation and continues after the newest version of the history. A key
-- of the wrong type is replaced. The first write is one that Redis refuses when it is out of
-- memory.
--
-- KEYS[1] config:phase3      string   KEYS[2] version:config  hash
-- KEYS[3] version:index      string   KEYS[4] index:lang_pairs hash
-- KEYS[5] config:history     hash: <version> and <version>:meta   KEYS[6] config:paused  string: JSON object
-- ARGV[1] version that the caller saw (0 = none)   ARGV[2] generation, if none is set yet
-- ARGV[3] configuration as a JSON object without 'version', not empty
-- ARGV[4] who and why, a JSON object, not empty
-- ARGV[5] config_channel   ARGV[6] versions kept in the history
-- ARGV[7] what is paused, a JSON object; '' leaves it as it is
-- ARGV[8..] language pairs and their pools, in pairs
-- Returns {status, version, generation, now (ms)}; status 1: applied, 0: already in force, -1: the
-- version is not the one that the caller saw; the current one is returned
-- Redis 7.0. Cost: O(language pairs + versions kept).
local config_key, version_key, index_key, pairs_key, history_key, paused_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local seen, generation, content, meta, config_channel, kept = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local paused = ARGV[7]
local FIRST = 8 -- index of the first pair
-- include lib/clock.lua
-- include lib/counter.lua
-- include lib/history.lua

local pairs_count = (#ARGV - FIRST + 1) / 2
local function same_pairs()
  if kind(pairs_key) ~= 'hash' then return pairs_count == 0 and kind(pairs_key) == 'none' end
  if redis.call('HLEN', pairs_key) ~= pairs_count then return false end
  for i = FIRST, #ARGV, 2 do
    if redis.call('HGET', pairs_key, ARGV[i]) ~= ARGV[i + 1] then return false end
  end
  return true
end

local version, current = config_counter()
local same = same_pairs()
local before = paused_now()
local stays = paused == '' or paused == before
if paused == '' then paused = before ~= '' and before or '{}' end
if version > 0 and same and kind(config_key) == 'string' and redis.call('GET', config_key) == document(content, version) and stays then
  return {0, version, current, now}
end
if version ~= seen then return {-1, version, current, now} end

if version == 0 then current = generation end
version = next_version(version)
redis.call('SET', config_key, document(content, version))
if not stays then redis.call('SET', paused_key, paused) end
count(version, seen, current)

if not same or kind(index_key) ~= 'string' then
  -- The key is filled before stale fields go, so it is never empty: a server whose hash slot is
  -- moving away cannot create a key again once it is gone.
  local wanted, stale = {}, kind(pairs_key) == 'hash' and redis.call('HKEYS', pairs_key) or {}
  if #stale == 0 or pairs_count == 0 then redis.call('DEL', pairs_key) end
  for i = FIRST, #ARGV, 2 do wanted[ARGV[i]] = true end
  for i = FIRST, #ARGV, 1000 do redis.call('HSET', pairs_key, unpack(ARGV, i, math.min(i + 999, #ARGV))) end
  for _, pair in ipairs(stale) do
    if not wanted[pair] then redis.call('HDEL', pairs_key, pair) end
  end
  redis.call('SET', index_key, string.format('%.0f', version))
end

remember(version, content, meta, paused)
tell(version)
return {1, version, current, now}

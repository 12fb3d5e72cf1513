-- config_pause: sets what is paused, as a new version of the dynamic configuration. The document
-- stays as it is, or absent.
--
-- Guarantee: of several callers that saw the same version, one wins. If the same is paused already,
-- nothing changes, so repeating a call is harmless. The first write is one that Redis refuses when
-- it is out of memory. Releases that do not know of pauses read the document as before.
--
-- KEYS[1] config:phase3   string   KEYS[2] version:config  hash
-- KEYS[3] config:history  hash     KEYS[4] config:paused   string: JSON object
-- ARGV[1] version that the caller saw (0 = none)   ARGV[2] generation, if none is set yet
-- ARGV[3] what is paused, a JSON object   ARGV[4] who and why, a JSON object, not empty
-- ARGV[5] config_channel   ARGV[6] versions kept in the history
-- Returns as config_apply
-- Redis 7.0. Cost: O(length of the configuration + versions kept).
local config_key, version_key, history_key, paused_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local seen, generation, paused, meta, config_channel, kept = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
-- include lib/clock.lua
-- include lib/counter.lua
-- include lib/history.lua

local version, current = config_counter()
if paused == paused_now() then return {0, version, current, now} end
if version ~= seen then return {-1, version, current, now} end

if version == 0 then current = generation end
version = next_version(version)
redis.call('SET', paused_key, paused)
count(version, seen, current)
local text = kind(config_key) == 'string' and redis.call('GET', config_key)
-- Only the form that a release wrote: what an operator wrote is left as it is.
local content = text and (string.match(text, '^({.*),"version":%d+}$') or string.match(text, '^({)"version":%d+}$'))
if content then
  content = content .. '}'
  redis.call('SET', config_key, document(content, version))
end
remember(version, content or text or nil, meta, paused)
tell(version)
return {1, version, current, now}

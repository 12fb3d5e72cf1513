-- config_read: reads the dynamic configuration in Redis and the version of its counter, both at one
-- moment.
--
-- Guarantee: read-only. A value of the wrong type is reported by its type, not an error.
--
-- KEYS[1] config:phase3  string   KEYS[2] version:config  hash   KEYS[3] config:paused  string
-- ARGV[1] longest configuration to return, bytes
-- Returns {version, generation, server, type, length, configuration, type of the pauses, pauses};
-- version 0 and generation '' without a counter; server names the history of the data, as in
-- identity.lua; type is 'none' without a configuration; configuration and pauses are '' unless they
-- are strings of at most the longest length
-- Redis 7.0. Cost: O(length).
local config_key, version_key, paused_key, longest = KEYS[1], KEYS[2], KEYS[3], tonumber(ARGV[1])
-- include lib/counter.lua
-- include lib/server.lua

local function read(key)
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'string' then return kind, 0, '' end
  local length = redis.call('STRLEN', key)
  return kind, length, length <= longest and redis.call('GET', key) or ''
end

local version, generation = config_counter()
local kind, length, content = read(config_key)
local paused_kind, _, paused = read(paused_key)
return {version, generation, server_history(), kind, length, content, paused_kind, paused}

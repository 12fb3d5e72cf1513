-- config_read: reads the dynamic configuration as it is in Redis, with the version of
-- its counter, from one moment.
--
-- Guarantee: read-only. A value of the wrong type is named, not an error.
--
-- KEYS[1] config:phase3  string   KEYS[2] version:config  hash
-- ARGV[1] longest configuration to return, bytes
-- Returns {version, generation, server, type, length, configuration}; version 0 and generation '' without a counter;
-- server names the history of the data, as identity.lua does; type is 'none' where there is no
-- configuration; configuration is '' unless it is a string of at most the longest length
-- Redis 7.0. Cost: O(length).
local config_key, version_key, longest = KEYS[1], KEYS[2], tonumber(ARGV[1])
-- include lib/config.lua
-- include lib/server.lua

local version, generation = config_counter()
local kind = redis.call('TYPE', config_key).ok
if kind ~= 'string' then return {version, generation, server_history(), kind, 0, ''} end
local length = redis.call('STRLEN', config_key)
if length > longest then return {version, generation, server_history(), kind, length, ''} end
return {version, generation, server_history(), kind, length, redis.call('GET', config_key)}

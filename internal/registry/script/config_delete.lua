-- config_delete: removes a named document with its history. Its version number stays for 7 days, so
-- that a new document with this name gets later versions: a caller that saw the old one cannot
-- overwrite the new one.
--
-- Guarantee: of several callers that saw the same version, one wins. The time is Redis' own.
--
-- KEYS[1] registry:config:<name>  hash   KEYS[2] registry:config_history:<name>  hash   KEYS[3] registry:configs  set
-- ARGV[1] name   ARGV[2] channel of changes   ARGV[3] version that the caller saw
-- Returns {1, version} removed, {3, version} conflict: the newest is another one, {4} there is no document
-- Redis 7.0. Cost: O(versions kept).
local record_key, history_key, names_key = KEYS[1], KEYS[2], KEYS[3]
local name, change_channel, seen = ARGV[1], ARGV[2], tonumber(ARGV[3])
-- include lib/clock.lua
-- include lib/publish.lua
-- include lib/document.lua
-- include lib/config.lua
local version, live = document_version()
if not live then return {4} end
if seen ~= version then return {3, version} end
drop_document()
redis.call('SREM', names_key, name)
tell_config(version, true)
return {1, version}

-- config_put: makes a content the newest version of a named document, and drops surplus versions.
--
-- Guarantee: of several callers that saw the same version, one wins. Content that is the newest
-- already changes nothing, so repeating a call is harmless. A version number is never used twice
-- while the record exists, which outlives the document by 7 days. The time is Redis' own. Redis
-- refuses the first write when it is out of memory.
--
-- KEYS[1] registry:config:<name>  hash   KEYS[2] registry:config_history:<name>  hash: <version> and <version>:meta
-- KEYS[3] registry:configs  set
-- ARGV[1] name   ARGV[2] channel of changes   ARGV[3] version that the caller saw (0 = none)   ARGV[4] content
-- ARGV[5] author   ARGV[6] note   ARGV[7] version that this restores, 0 for none
-- ARGV[8] versions kept   ARGV[9] bytes kept in all versions, at least one version
-- Returns {1, version, ms} written, {2, version, ms} it is the newest already, {3, version} conflict: the newest is another one
-- Redis 7.0. Cost: O(length + versions kept).
local record_key, history_key, names_key = KEYS[1], KEYS[2], KEYS[3]
local name, change_channel, seen, content, author, note = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local restores, kept, room = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
-- include lib/clock.lua
-- include lib/publish.lua
-- include lib/document.lua
-- include lib/config.lua
local version, live, last = document_version()
if live and redis.call('HGET', record_key, 'content') == content then
  return {2, version, tonumber(redis.call('HGET', record_key, 'at')) or 0}
end
if seen ~= live_version(version, live) then return {3, live_version(version, live)} end

-- If the record was lost, versions go on behind the history.
version = math.max(version, last) + 1
put_document(version, content, author, note, restores, kept, room)
redis.call('SADD', names_key, name)
tell_config(version, false)
return {1, version, now}

-- chain_put: makes a document the newest version of a chain, which serves from then on, and drops
-- surplus versions. It ends the chain's shadow.
--
-- Guarantee: of several callers that saw the same version, one wins. A document that is the newest
-- already, without a shadow, changes nothing, so repeating a call is harmless. All lists that the
-- chain asks exist at that moment. The time is Redis' own. Redis refuses the first write when it is
-- out of memory.
--
-- KEYS[1] lists:chain:<chain>  hash   KEYS[2] lists:chain_history:<chain>  hash   KEYS[3] lists:index  hash
-- KEYS[4] lists:requests:<tenant>  hash, for a decision
-- ARGV[1] chain   ARGV[2] channel   ARGV[3] version that the caller saw (0 = none)   ARGV[4] document
-- ARGV[5] author   ARGV[6] note   ARGV[7] version that this restores, 0 for none
-- ARGV[8] versions kept   ARGV[9] bytes kept in all versions   ARGV[10] birth of a new chain, random
-- ARGV[11] the decision of a request, JSON, or ''   ARGV[12..] lists that the chain asks
-- Returns {1, version} written, {2, version} it is the newest already, {3, version} the newest is another one,
--   {5, list...} there are no such lists, {6, why} the request cannot be approved
-- Redis 7.0. Cost: O(length + versions kept + lists).
local record_key, history_key, index_key, requests_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local chain, change_channel, seen, content, author, note = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6]
local restores, kept, room, birth, decision = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
-- include lib/clock.lua
-- include lib/document.lua
-- include lib/tell.lua
-- include lib/chain.lua
-- include lib/decision.lua
local version, live, last = document_version()
local refused = undecided(live and redis.call('HGET', record_key, 'revision') or 0)
if refused then return {6, refused} end
local is = redis.call('HMGET', record_key, 'content', 'shadow')
if is[1] == content and not is[2] then
  decided()
  return {2, version}
end
if seen ~= live_version(version, live) then return {3, live_version(version, live)} end
local unknown = unknown_lists(12)
if #unknown > 0 then return {5, unpack(unknown)} end

-- If the record was lost, versions go on behind the history.
if is[1] ~= content then
  version = math.max(version, last) + 1
  put_document(version, content, author, note, restores, kept, room)
end
redis.call('HSET', record_key, 'lists', table.concat(ARGV, ' ', 12))
redis.call('HDEL', record_key, 'shadow', 'shadow_at', 'shadow_by', 'shadow_lists')
change_chain(true)
decided()
return {1, version}

-- chain_shadow: sets the document that readers evaluate beside the serving version of a chain, or
-- ends that.
--
-- Guarantee: nothing changes unless the serving version is the one that the caller saw. The same
-- shadow again changes nothing. All lists that the shadow asks exist at that moment. Redis refuses
-- the first write when it is out of memory.
--
-- KEYS[1] lists:chain:<chain>  hash   KEYS[2] lists:chain_history:<chain>  hash   KEYS[3] lists:index  hash
-- KEYS[4] lists:requests:<tenant>  hash, for a decision
-- ARGV[1] chain   ARGV[2] channel   ARGV[3] version that the caller saw   ARGV[4] document, '' to end the shadow
-- ARGV[5] author and note   ARGV[6] birth, if the record has lost it   ARGV[7] the decision of a request, JSON, or ''
-- ARGV[8..] lists that the shadow asks
-- Returns {1, version} done, {2, version} it was so already, {3, version} another version serves, {4} there is no such chain,
--   {5, list...} there are no such lists, {6, why} the request cannot be approved
-- Redis 7.0. Cost: O(length + versions kept + lists).
local record_key, history_key, index_key, requests_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local chain, change_channel, seen, shadow, by, birth, decision = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5], ARGV[6], ARGV[7]
-- include lib/clock.lua
-- include lib/document.lua
-- include lib/tell.lua
-- include lib/chain.lua
-- include lib/decision.lua
local version, live = document_version()
if not live then return {4} end
local refused = undecided(live and redis.call('HGET', record_key, 'revision') or 0)
if refused then return {6, refused} end
if seen ~= version then return {3, version} end
if (redis.call('HGET', record_key, 'shadow') or '') == shadow then
  decided()
  return {2, version}
end
local unknown = unknown_lists(8)
if #unknown > 0 then return {5, unpack(unknown)} end
if shadow == '' then
  redis.call('HDEL', record_key, 'shadow', 'shadow_at', 'shadow_by', 'shadow_lists')
else
  redis.call('HSET', record_key, 'shadow', shadow, 'shadow_at', at, 'shadow_by', by, 'shadow_lists', table.concat(ARGV, ' ', 8))
end
change_chain(true)
decided()
return {1, version}

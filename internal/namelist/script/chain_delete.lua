-- chain_delete: removes a chain with its history, shadow and statistics. Its version number stays for 7
-- days, so that a caller that saw the old chain cannot overwrite a new one.
--
-- Guarantee: of several callers that saw the same version, one wins. The time is Redis' own.
--
-- KEYS[1] lists:chain:<chain>  hash   KEYS[2] lists:chain_history:<chain>  hash   KEYS[3] lists:index  hash
-- KEYS[4] lists:clients:chain_<chain>  hash   KEYS[5] lists:readers:chain_<chain>  hash
-- KEYS[6] lists:reader_counts:chain_<chain>  hash   KEYS[7] lists:counted:chain_<chain>  hash
-- KEYS[8] lists:history:chain_<chain>  hash   KEYS[9] lists:requests:<tenant>  hash, for a decision
-- ARGV[1] chain   ARGV[2] channel   ARGV[3] version that the caller saw   ARGV[4] birth, if the record has lost it
-- ARGV[5] the decision of a request, JSON, or ''
-- Returns {1, version} removed, {3, version} the newest is another one, {4} there is no such chain,
--   {6, why} the request cannot be approved
-- Redis 7.0. Cost: O(versions kept).
local record_key, history_key, index_key, requests_key = KEYS[1], KEYS[2], KEYS[3], KEYS[9]
local chain, change_channel, seen, birth, decision = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
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
drop_document()
redis.call('UNLINK', unpack(KEYS, 4, 8))
redis.call('HDEL', record_key, 'lists', 'shadow', 'shadow_at', 'shadow_by', 'shadow_lists')
change_chain(false)
decided()
return {1, version}

-- edit: appends an edit to the log of a list. The entries come from the call, or are everything
-- that an edit session has staged, which ends the session. It trims the log.
--
-- Guarantee: readers see an edit as a whole, at one revision. An edit that is repeated within an
-- hour, before another 1,000 with an id, is not appended again. Redis refuses the first write when
-- it is out of memory.
--
-- KEYS[1] lists:index  hash   KEYS[2] lists:record:<list>  hash   KEYS[3] lists:versions:<list>  hash
-- KEYS[4] lists:edits:<list>  stream   KEYS[5] lists:staged:<list>  hash   KEYS[6] lists:edit_ids:<list>  zset
-- KEYS[7] lists:requests:<tenant>  hash, for a decision
-- ARGV[1] list   ARGV[2] channel   ARGV[3] id of the edit, '' for one that is never repeated   ARGV[4] birth of the list, '' for any
-- ARGV[5] states in which it is allowed, each between commas   ARGV[6] operation id of the session, or ''
-- ARGV[7] the most entries behind the serving version's base   ARGV[8] the most entries of the log
-- ARGV[9] how many entries, ignored with a session   ARGV[10] entries, a JSON array; of a session they are staged
-- ARGV[11] author and note, JSON   ARGV[12] the decision of a request, JSON, or ''
-- ARGV[13] the most ids that may change without approval in 24 hours, -1 for any; '' counts nothing
-- ARGV[14..] with a session: fields to set, name and value in turns
-- Returns {1, at, revision} done, {2, at, revision} it was appended before, {3, at, head} the state is another one, or the session is over
--   {4, at} there is no such list, {5, at, entries} that many entries are already behind the base,
--   {6, at, why} the request cannot be approved, {7, at, ids} that many were changed without approval before
-- Redis 7.0. Cost: O(entries added and trimmed).
local index_key, record_key, versions_key, edits_key, staged_key, ids_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local list, change_channel, id, birth, states, session = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local requests_key, decision, most = KEYS[7], ARGV[12], tonumber(ARGV[13])
local limit, log, n, entries, by = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], ARGV[11]
-- include lib/clock.lua
-- include lib/head.lua
-- include lib/tell.lua
-- include lib/decision.lua
-- include lib/quota.lua
local is = redis.call('HMGET', record_key, 'birth', 'state', 'op', 'lease', 'serving', 'edited', 'revision', 'trimmed')
if not is[1] or is[2] == 'deleted' then return {4, at} end
local done = id ~= '' and redis.call('ZSCORE', ids_key, id)
if done then return {2, at, tonumber(done)} end
if birth ~= '' and birth ~= is[1] or not string.find(states, ',' .. is[2] .. ',', 1, true) or
  session ~= '' and (session ~= is[3] or (tonumber(is[4]) or 0) <= now) then return {3, at, head()} end

local large = n > 1000
if session ~= '' then
  local staged = redis.call('HVALS', staged_key)
  n, entries, large = #staged, '[' .. table.concat(staged, ',') .. ']', #staged > 1000
end
local edited, base = tonumber(is[6]) or 0, 0
local version = redis.call('HGET', versions_key, is[5] or '0')
if version then base = tonumber(cjson.decode(version).edited) or 0 end
if edited - base + n > limit then return {5, at, edited - base} end
local refused = undecided(is[7])
if refused then return {6, at, refused} end
local before = beyond(n)
if before then return {7, at, before} end

local revision = string.format('%.0f', (tonumber(is[7]) or 0) + 1)
local total = edited + n
redis.call('XADD', edits_key, revision .. '-0', 'n', n, 'total', string.format('%.0f', total), 'entries', entries, 'by', by)
local set = {'revision', revision, 'edited', string.format('%.0f', total)}
local trimmed = tonumber(is[8]) or 0 -- entries of all edits that the log no longer has
while total - trimmed > log do -- from the oldest on
  local item = redis.call('XRANGE', edits_key, '-', '+', 'COUNT', 1)[1]
  redis.call('XDEL', edits_key, item[1])
  trimmed = tonumber(item[2][4])
  set[5], set[6], set[7], set[8] = 'floor', string.match(item[1], '^%d+'), 'trimmed', item[2][4]
end
for i = 14, #ARGV do set[#set + 1] = ARGV[i] end
redis.call('HSET', record_key, unpack(set))
if id ~= '' then
  redis.call('ZADD', ids_key, revision, id)
  redis.call('ZREMRANGEBYRANK', ids_key, 0, -1001)
  redis.call('PEXPIRE', ids_key, 3600000)
end
redis.call('HSET', index_key, list, revision .. ' ' .. is[1])
decided()
spend(n)
local h
if session ~= '' then
  redis.call('UNLINK', staged_key)
  h = not large and head() or nil
end
tell(revision, is[1], h, not large and entries or nil)
return {1, at, tonumber(revision)}

-- step: changes the record and the versions of a list, if it still is as the caller saw it. All
-- changes of state are steps. The caller has decided what is allowed, from the head that it saw.
--
-- Guarantee: of several callers that saw the same head, one wins. A repeated step changes nothing.
-- It works when Redis has no memory left. The time is Redis' own.
--
-- KEYS[1] lists:index  hash   KEYS[2] lists:record:<list>  hash   KEYS[3] lists:versions:<list>  hash
-- KEYS[4] lists:edits:<list>  stream   KEYS[5] lists:staged:<list>  hash   KEYS[6] lists:edit_ids:<list>  zset
-- KEYS[7] lists:clients:<list>  hash   KEYS[8] lists:readers:<list>  hash   KEYS[9] lists:reader_counts:<list>  hash
-- KEYS[10] lists:counted:<list>  hash   KEYS[11] lists:history:<list>  hash
-- KEYS[12] lists:requests:<tenant>  hash, for a decision
-- ARGV[1] list   ARGV[2] channel   ARGV[3] random id of this step
-- ARGV[4] 'quiet': it takes no revision, and nothing is published; 'fresh': all that there was of the list goes; or ''
-- ARGV[5] what the caller saw: birth, state, op, holder, lease, serving, next and floor, with spaces between
-- ARGV[6] how many of the following are of versions that must not have changed: number and JSON in turns
-- ARGV[7] how many are of fields: name and value in turns; the value of '@name' is ms from now
-- ARGV[8] the decision of a request, JSON, or ''
-- ARGV[9] how many ids it changes   ARGV[10] the most that may change without approval in 24 hours, -1 for any; '' counts nothing
-- ARGV[11..] such versions, fields, then versions to write: number and JSON in turns, '' to remove it
-- Returns {1, at, head} done, {2, at, head} this very step was the newest one, {3, at, head} the list is not as the caller saw it,
--   {6, why} the request cannot be approved, {7, ids} that many were changed without approval before
-- Redis 7.0. Cost: O(fields), and O(edits) with 'fresh'.
local index_key, record_key, versions_key, edits_key, staged_key, requests_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[12]
local list, change_channel, id, mode, saw, decision = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[8]
local ids, most = tonumber(ARGV[9]), tonumber(ARGV[10])
local watched = 10 + tonumber(ARGV[6])
local last = watched + tonumber(ARGV[7])
-- include lib/clock.lua
-- include lib/head.lua
-- include lib/tell.lua
-- include lib/decision.lua
-- include lib/quota.lua
local is = redis.call('HMGET', record_key, 'birth', 'state', 'op', 'holder', 'lease', 'serving', 'next', 'floor', 'step', 'revision')
if is[9] == id then return {2, at, head()} end
for i = 1, 8 do is[i] = is[i] or '' end
if table.concat(is, ' ', 1, 8) ~= saw then return {3, at, head()} end
for i = 11, watched, 2 do
  if redis.call('HGET', versions_key, ARGV[i]) ~= ARGV[i + 1] then return {3, at, head()} end
end
local refused = undecided(is[2] ~= '' and is[2] ~= 'deleted' and is[10] or 0)
if refused then return {6, refused} end
local before = beyond(ids)
if before then return {7, before} end

redis.call('HDEL', record_key, '') -- Redis accepts what follows a write that needs no memory
local revision = string.format('%.0f', (tonumber(is[10]) or 0) + 1)
if mode == 'fresh' then redis.call('UNLINK', unpack(KEYS, 2, 11)) end
local set = {}
if mode ~= 'quiet' then set = {'step', id, 'revision', revision} end
for i = watched + 1, last, 2 do
  local name, value = ARGV[i], ARGV[i + 1]
  if string.sub(name, 1, 1) == '@' then name, value = string.sub(name, 2), string.format('%.0f', now + tonumber(value)) end
  set[#set + 1] = name
  set[#set + 1] = value
end
if #set > 0 then redis.call('HSET', record_key, unpack(set)) end
for i = last + 1, #ARGV, 2 do
  if ARGV[i + 1] == '' then redis.call('HDEL', versions_key, ARGV[i]) else redis.call('HSET', versions_key, ARGV[i], ARGV[i + 1]) end
end
decided()
spend(ids)
local h = head()
if mode == 'quiet' then return {1, at, h} end

local state = redis.call('HMGET', record_key, 'state', 'birth')
if state[1] ~= 'editing' then redis.call('UNLINK', staged_key) end
if state[1] == 'deleted' then
  redis.call('HDEL', index_key, list)
else
  redis.call('HSET', index_key, list, revision .. ' ' .. state[2])
end
tell(revision, state[2], h)
return {1, at, h}

-- changes: reads the nodes that changed since a revision, oldest change first, one page at a time,
-- with everything that a replica's cache holds of them.
--
-- Guarantee: read-only. A node that changes between two pages moves to the end and is read again,
-- so paging misses nothing.
--
-- KEYS[1] version:nodes  hash   KEYS[2] index:revision  zset
-- ARGV[1] since, a revision (0 = everything)   ARGV[2] page size
-- ARGV[3..] profile fields to return, as in lib/state.lua
-- Returns {generation, when it or the server's history began ('0' if that is not recorded),
-- revision,
--   now, floor, more (0 or 1), node, ...}; a node is
--   {'-' .. id, revision, lost (0 or 1)}       gone: lost is 1 if no script removed it
--   {id, revision, used, last_heartbeat_ms, resources, profile field, ...}; absent ones are ''
-- Foreign keys (profiles, slots, load, metrics) come from the index of this cell.
-- Redis 7.0. Cost: O(page).
local version_key, revisions_key = KEYS[1], KEYS[2]
local since, page, fields = ARGV[1], tonumber(ARGV[2]), {unpack(ARGV, 3)}
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/state.lua

local version = redis.call('HMGET', version_key, 'generation', 'generation_at_ms', 'revision', 'floor', 'history_at_ms')
local changed = redis.call('ZRANGEBYSCORE', revisions_key, '(' .. since, '+inf', 'WITHSCORES', 'LIMIT', 0, page + 1)
local began = math.max(tonumber(version[2] or '') or 0, tonumber(version[5] or '') or 0)
local reply = {version[1] or '', string.format('%.0f', began), version[3] or '0', string.format('%.0f', now), version[4] or '0', 0}
if #changed > 2 * page then reply[6] = 1 end
for i = 1, math.min(#changed, 2 * page), 2 do
  local id, revision = changed[i], changed[i + 1]
  if string.sub(id, 1, 1) == '-' then
    reply[#reply + 1] = {id, revision, '0'}
  else
    reply[#reply + 1] = node_state(id, revision)
  end
end
return reply

-- nodes: reads some nodes, with everything that a replica's cache holds of them. It is for changes
-- that no script announced, such as an operator's HSET.
--
-- Guarantee: read-only.
--
-- KEYS[1] version:nodes  hash   KEYS[2] index:revision  zset
-- ARGV[1] number of nodes   ARGV[2..] their ids, then the profile fields to return: see
--   lib/state.lua
-- Returns {now, revision of the cell, node, ...}; nodes as in changes.lua, with the revision of
--   their last announced change, '0' if there is none
-- Foreign keys (profiles, slots, load, metrics) are of this cell, as its nodes are.
-- Redis 7.0. Cost: O(n).
local version_key, revisions_key = KEYS[1], KEYS[2]
local count = tonumber(ARGV[1])
local fields = {unpack(ARGV, count + 2)}
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/state.lua

local reply = {string.format('%.0f', now), redis.call('HGET', version_key, 'revision') or '0'}
for i = 2, count + 1 do
  reply[i + 1] = node_state(ARGV[i], redis.call('ZSCORE', revisions_key, ARGV[i]) or '0')
end
return reply

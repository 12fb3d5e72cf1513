-- drain: an operator stops a node from getting jobs, or allows it again. Running jobs go on.
--
-- Guarantee: it lasts until an operator ends it, for every agent, even over a restart and while the
-- agent is away. Repeating a call changes nothing and returns the same, even if the node has left
-- meanwhile.
--
-- KEYS[1] nodes:<node> hash   KEYS[2] nodes:index:online set   KEYS[3] index:revision zset
-- KEYS[4] version:nodes hash  KEYS[5] slots:<node> hash        KEYS[6] drained set
-- ARGV[1] node   ARGV[2] channel   ARGV[3] drained, or online to undo it
-- Returns 1; 0: there is no such node. For a node that has left: 1 if the wanted state is set
--   already; for an undrain, as long as the tombstone is kept
-- Redis 7.0. Cost: O(1).
local profile_key, online_key, revisions_key, version_key, slots_key, drained_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local node, channel, want = ARGV[1], ARGV[2], ARGV[3]
-- include lib/clock.lua
-- include lib/announce.lua
-- include lib/health.lua

local profile = redis.call('HMGET', profile_key, 'epoch', 'status', 'max_concurrency')
local epoch = profile[1]
if not epoch and want == 'drained' then return redis.call('SISMEMBER', drained_key, node) end
local changed = redis.call(want == 'drained' and 'SADD' or 'SREM', drained_key, node)
-- An earlier call may have changed it without knowing: its answer was lost, or no replica of Redis
-- confirmed it.
if not epoch then return (changed == 1 or redis.call('ZSCORE', revisions_key, '-' .. node)) and 1 or 0 end
-- An undrain does not bring a node online that its agent drains. A node without an agent drains
-- until an agent comes.
if (profile[2] == 'drained') == (want == 'drained') then return 1 end
if want ~= 'drained' and epoch == 'import' then want = 'draining' end
local used = tonumber(string.match(redis.call('HGET', slots_key, 'sum') or '', '^%d+$') or '0')
local revision = announce('c', node, epoch, want, profile[3] or '0', used, '')
redis.call('HSET', profile_key, 'status', want, 'health', health(want), 'version', revision)
redis.call(want == 'online' and 'SADD' or 'SREM', online_key, node)
return 1

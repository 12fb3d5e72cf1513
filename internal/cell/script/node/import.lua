-- import: makes a node known that has no agent yet, under the epoch 'import'. It is draining, and
-- takes no job before an agent registers it.
--
-- Guarantee: leaves a node alone that has changed since the caller saw it: an agent registered it,
-- it was heard, or it has a job. Repeating a call changes only the time of the last heartbeat.
--
-- KEYS as in register.lua:
-- KEYS[1] nodes:<node> hash      KEYS[2] load:<node> string         KEYS[3] slots:<node> hash
-- KEYS[4] dispatch:<node> stream KEYS[5] nodes:index:online set     KEYS[6] index:revision zset
-- KEYS[7] version:nodes hash     KEYS[8] finished zset              KEYS[9] due zset
-- KEYS[10] waiting hash          KEYS[11] version:waiting string    KEYS[12] serves:<node> string
-- KEYS[13] drained set           KEYS[14] metrics:<node> string
-- KEYS[15..] pool:<pool>:members set, one for each pool
-- ARGV[1] node   ARGV[2] channel   ARGV[3] profile as JSON, for the event
-- ARGV[4] max_concurrency   ARGV[5] pool_ids, JSON
-- ARGV[6] epoch that the caller saw, '' for no node   ARGV[7] last heartbeat that it saw, ms
-- ARGV[8..] the profile's other fields and their values, JSON
-- Returns {revision, lost job, ...}; {-2}: the node has changed since the caller saw it
-- Foreign keys (jobs, replies, former pools) come from records of this cell.
-- Redis 7.0. Cost: O(pools).
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local due_key, waiting_key, waiting_version_key, serves_key, drained_key, metrics_key =
  KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local node, epoch, channel, body, max, pool_ids = ARGV[1], 'import', ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local seen_epoch, seen_heartbeat = ARGV[6], tonumber(ARGV[7])
local STATED = 8
local POOLS = 15 -- the first of KEYS that is the member set of a pool
local call = redis.call
-- include lib/clock.lua
-- include lib/stated.lua
if equal and not taken then
  call('SET', load_key, at)
  return {tonumber(call('HGET', version_key, 'revision')) or 0}
end
local heard = string.match(redis.call('MGET', load_key)[1] or '', '^%d%d%d%d%d%d%d%d%d%d%d%d%d') or 0
if (before[1] or '') ~= seen_epoch or tonumber(heard) > seen_heartbeat or
  (tonumber(call('HGET', slots_key, 'sum')) or 0) > 0 then return {-2} end
-- include lib/pools_left.lua
local load = at
-- include lib/taken_over.lua
-- include lib/profile.lua
table.insert(lost, 1, revision)
return lost

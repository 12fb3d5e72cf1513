-- deregister: takes a node out of the cell.
--
-- Guarantee: changes nothing unless the caller's epoch is the registered one. Repeating a call
-- finds nothing to do. Jobs that the node still owns go to their next attempts in the same script,
-- which does not count as a failure.
--
-- KEYS[1] nodes:<node>      hash     KEYS[2] load:<node>        string
-- KEYS[3] slots:<node>      hash     KEYS[4] dispatch:<node>    stream
-- KEYS[5] nodes:index:online set     KEYS[6] index:revision     zset
-- KEYS[7] version:nodes     hash     KEYS[8] finished           zset
-- KEYS[9] due zset          KEYS[10] waiting hash               KEYS[11] version:waiting string
-- KEYS[12] serves:<node>    string   KEYS[13] metrics:<node>    string
-- ARGV[1] node   ARGV[2] epoch   ARGV[3] channel   ARGV[4] tombstones kept, at most
-- Returns {revision, lost job, ...}; {0}: the node was not there; {-2}: superseded
-- Foreign keys (jobs, replies, pools) come from records of this cell.
-- Redis 7.0. Cost: O(jobs lost + pools + silent nodes, where a tombstone is dropped).
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local due_key, waiting_key, waiting_version_key, serves_key, metrics_key = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local node, epoch, channel, tombstones = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua

local profile = redis.call('HMGET', profile_key, 'epoch', 'pool_ids')
if not profile[1] then return {0} end
if profile[1] ~= epoch then return {-2} end
-- The failure is for jobs that have no time left.
local pool_ids, counted, body, failure = profile[2], false, '{"reaped":false}',
  '{"code":"interrupted","message":"the node left before the job was done"}'
-- include lib/leave.lua
table.insert(lost, 1, revision)
return lost

-- reap: takes a node out of the cell that was silent for longer than the limit. The jobs that it
-- owned go to their next attempts, which counts as a failure.
--
-- Guarantee: changes nothing unless the node has this epoch and was silent for longer than the
-- limit, by Redis' clock. Repeating a call finds nothing to do. A node of epoch 'import' stays: it
-- has no agent that could be heard.
--
-- KEYS[1] nodes:<node>      hash     KEYS[2] load:<node>        string
-- KEYS[3] slots:<node>      hash     KEYS[4] dispatch:<node>    stream
-- KEYS[5] nodes:index:online set     KEYS[6] index:revision     zset
-- KEYS[7] version:nodes     hash     KEYS[8] finished           zset
-- KEYS[9] due zset          KEYS[10] waiting hash               KEYS[11] version:waiting string
-- KEYS[12] serves:<node>    string   KEYS[13] metrics:<node>    string
-- ARGV[1] node   ARGV[2] epoch   ARGV[3] channel   ARGV[4] tombstones kept, at most   ARGV[5] heartbeat
--   limit, ms
-- Returns {revision, lost job, ...}; {0}: the node is not there; {-2}: it has another epoch; {-4}:
-- it lives
-- Foreign keys (jobs, queues, replies, pools) come from records of this cell.
-- Redis 7.0. Cost: O(jobs lost + pools + silent nodes, where a tombstone is dropped).
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local due_key, waiting_key, waiting_version_key, serves_key, metrics_key = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[13]
local node, epoch, channel, tombstones, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua

local profile = redis.call('HMGET', profile_key, 'epoch', 'pool_ids', 'registered_at_ms')
if not profile[1] then return {0} end
if profile[1] ~= epoch then return {-2} end
local beat = tonumber(string.match(redis.call('MGET', load_key)[1] or profile[3] or '', '^%d%d%d%d%d%d%d%d%d%d%d%d%d') or '0')
if epoch == 'import' or now - beat <= limit then return {-4} end
local pool_ids, counted, body, failure = profile[2], true, '{"reaped":true}',
  '{"code":"node_lost","message":"the node fell silent"}'
-- include lib/leave.lua
table.insert(lost, 1, revision)
return lost

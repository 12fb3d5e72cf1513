-- heartbeat: proves that a node lives, stores its figures if there are any, and compares what the
-- agent runs with what the node owns, in both directions.
--
-- Guarantee: changes nothing unless the caller's epoch is the registered one. It does not touch the
-- tracked profile unless the status changes. Repeating a call changes only the revision and the
-- time; of a quiet heartbeat (lib/quiet.lua) only the time. It counts the slots in use again each
-- time, so that an edit by hand cannot leave slots lost or given twice.
--
-- KEYS[1] nodes:<node>      hash     KEYS[2] load:<node>       string: the time of this heartbeat
-- KEYS[3] slots:<node>      hash     KEYS[4] index:revision    zset
-- KEYS[5] version:nodes     hash
-- KEYS[6] dispatch:<node>   stream   KEYS[7] nodes:index:online  set
-- KEYS[8] metrics:<node>    string: only with resources, which it then holds
-- ARGV[1] node              ARGV[2] epoch        ARGV[3] status, online or draining
-- ARGV[4] channel
-- ARGV[5] last dispatch entry taken in, '' for none or none since the last heartbeat: older entries
--   are trimmed
-- ARGV[6] resources, JSON; '' leaves the former ones in force: the event has none then, and a
--   replica that missed the last ones finds the gap in the revisions. Where they begin with
--   {"at_ms":0, they get the time of this heartbeat in its place
-- ARGV[7..] attempts that the agent holds, 'job:attempt'
--   From the fifth on those at the end that are '' are left out: a table of four costs least.
-- Returns one of
--   revision          if no slot is in use; as text, because that costs an answer least
--   '0'               if it is quiet: see lib/quiet.lua
--   'revision used'   if slots are in use
--   {revision, used, {start}, {stop}, {cancel}}   if a list is not empty; they hold 'job:attempt'
--   -1                unknown node: register again
--   -2                superseded by another epoch
-- Foreign keys: index:heartbeats, of this cell.
-- Redis 7.0. Cost: O(slots in use + attempts named). Six commands for a quiet heartbeat, seven for
-- another one of an idle node, one more with resources.
local KEYS, ARGV = KEYS, ARGV -- a global is looked up by its name each time
local profile_key, load_key, slots_key, revisions_key, version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dispatch_key, online_key = KEYS[6], KEYS[7]
local node, epoch, status, channel, read, resources = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] or '', ARGV[6] or ''

local call = redis.call -- looking it up each time would be a hundredth of the cost

local profile = call('HMGET', profile_key, 'epoch', 'status')
if profile[1] ~= epoch then return profile[1] and -2 or -1 end
-- include lib/at.lua
local owned = call('HGETALL', slots_key)
-- This comes first because it frees memory: if Redis refuses other writes for lack of memory, it
-- accepts those that follow.
if read ~= '' then call('XTRIM', dispatch_key, 'MINID', read) end
local load, first, last, metrics_key = at, 7, #ARGV, resources ~= '' and KEYS[8]
local mark = nil
-- include lib/beat.lua
return answer

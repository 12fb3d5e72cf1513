-- owned_spec: reads the spec of a job, for the node that owns it.
--
-- Guarantee: read-only. No node reads a job of another node, or of an earlier epoch.
--
-- KEYS[1] slots:<node>  hash   KEYS[2] jobs:<job>  hash
-- ARGV[1] job   ARGV[2] epoch
-- Returns {spec, job}, fields of the record; {} if the node does not own the job in this epoch
-- Redis 7.0. Cost: O(1).
local slots_key, job_key, job, epoch = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local owner = string.match(redis.call('HGET', slots_key, job) or '', '^%d+:([^:]*):')
if owner ~= epoch then return {} end
return redis.call('HMGET', job_key, 'spec', 'job')

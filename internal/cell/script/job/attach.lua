-- attach: makes a replica the one that gets a job's result, and returns what is known of the job
-- now.
--
-- Guarantee: the last attach wins, and the replica before hears of it. A terminal job is only read.
-- Each attach increments attaches. A call that read an older count changes nothing, so a slow
-- request from a closed session cannot steal the job.
--
-- KEYS[1] jobs:<job>  hash
-- ARGV[1] job   ARGV[2] tenant, '' for any   ARGV[3] replica
-- ARGV[4] the record's field attaches, as seen before; '' for none   ARGV[5..] fields of the record
--   to return
-- Returns the fields' values; {} if there is no such job of this tenant, {''} if another attach
--   came first
-- Foreign keys (the former replica's reply stream) come from the record.
-- Redis 7.0. Cost: O(1).
local job_key = KEYS[1]
local job, tenant, replica, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/key.lua
-- include lib/record.lua

local record = redis.call('HMGET', job_key, 'state', 'job', 'reply_to', 'attaches')
local state, former = record[1], record[3]
if not state or (tenant ~= '' and read_job(record[2]) ~= tenant) then return {} end
if state == 'running' or state == 'cancelling' or state == 'waiting' or state == 'retry_wait' or state == 'scheduled' then
  if (record[4] or '') ~= seen then return {''} end
  redis.call('HSET', job_key, 'reply_to', replica, 'attaches', (tonumber(seen) or 0) + 1)
  if former and former ~= '' and former ~= replica then
    -- Protected: this is only a hint, to a replica that no longer has the job.
    redis.pcall('XADD', key('replies', former), 'NOMKSTREAM', '*', 'd', job)
  end
end
return redis.call('HMGET', job_key, unpack(ARGV, 5))

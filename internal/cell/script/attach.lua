-- attach: makes a replica the one that gets a job's result, and says what is
-- known of the job now.
--
-- Guarantee: the last to attach wins; the one before is told. A terminal job is
-- only read. The same call again changes nothing.
--
-- KEYS[1] jobs:<job>  hash
-- ARGV[1] job   ARGV[2] tenant, '' for any   ARGV[3] replica
-- ARGV[4] key prefix   ARGV[5] tag part
-- ARGV[6..] fields of the record to return
-- Returns the fields' values; {} when there is no such job of this tenant
-- Foreign keys (the former replica's reply stream) come from the record.
-- Redis 7.0. Cost: O(1).
local job_key = KEYS[1]
local job, tenant, replica, PREFIX, TAG = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
-- include lib/key.lua

local record = redis.call('HMGET', job_key, 'state', 'job', 'reply_to')
if not record[1] or (tenant ~= '' and string.match(record[2] or '', '^(%S+) ') ~= tenant) then return {} end
local open = record[1] == 'running' or record[1] == 'cancelling' or record[1] == 'waiting' or record[1] == 'retry_wait' or
  record[1] == 'scheduled'
if open and record[3] ~= replica then
  redis.call('HSET', job_key, 'reply_to', replica)
  if record[3] and record[3] ~= '' then
    -- Protected: a hint, to a replica that has the job no longer.
    redis.pcall('XADD', key('replies', record[3]), 'NOMKSTREAM', '*', 'd', job)
  end
end
return redis.call('HMGET', job_key, unpack(ARGV, 6))

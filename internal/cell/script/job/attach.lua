-- attach: makes a replica the one that gets a job's result, and says what is
-- known of the job now.
--
-- Guarantee: the last to attach wins; the one before is told. A terminal job is
-- only read. A call that comes late, behind another attach, changes nothing: who sent it may be
-- gone, and the job is somebody else's by now.
--
-- KEYS[1] jobs:<job>  hash
-- ARGV[1] job   ARGV[2] tenant, '' for any   ARGV[3] replica
-- ARGV[4] the record's field attaches, as seen before; '' for none   ARGV[5..] fields of the record to return
-- Returns the fields' values; {} when there is no such job of this tenant, {''} when another attach came between
-- Foreign keys (the former replica's reply stream) come from the record.
-- Redis 7.0. Cost: O(1).
local job_key = KEYS[1]
local job, tenant, replica, seen = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/key.lua

local record = redis.call('HMGET', job_key, 'state', 'job', 'reply_to', 'attaches')
if not record[1] or (tenant ~= '' and string.match(record[2] or '', '^(%S+) ') ~= tenant) then return {} end
local open = record[1] == 'running' or record[1] == 'cancelling' or record[1] == 'waiting' or record[1] == 'retry_wait' or
  record[1] == 'scheduled'
if open then
  if (record[4] or '') ~= seen then return {''} end
  redis.call('HSET', job_key, 'reply_to', replica, 'attaches', (tonumber(seen) or 0) + 1)
  if record[3] and record[3] ~= '' and record[3] ~= replica then
    -- Protected: a hint, to a replica that has the job no longer.
    redis.pcall('XADD', key('replies', record[3]), 'NOMKSTREAM', '*', 'd', job)
  end
end
return redis.call('HMGET', job_key, unpack(ARGV, 5))

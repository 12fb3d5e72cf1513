-- cancel: asks the node that runs a job to stop it. The slot stays taken until
-- the agent confirms.
--
-- Guarantee: changes a running job only, and only the caller's; the same call
-- again changes nothing. The request reaches the agent by its stream and, should
-- that entry be lost, by the mark in the slot that every heartbeat reads. The first
-- write asks for no memory, so that it works where Redis refuses other writes.
--
-- KEYS[1] jobs:<job>  hash
-- ARGV[1] job   ARGV[2] tenant, '' for any   ARGV[3] key prefix   ARGV[4] tag part
-- ARGV[5..] fields of the record to return
-- Returns the fields' values; {} when there is no such job of this tenant
-- Foreign keys (slots, dispatch of the job's node) come from the record.
-- Redis 7.0. Cost: O(1).
local job_key = KEYS[1]
local job, tenant, PREFIX, TAG = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/key.lua
-- include lib/here.lua

local record = redis.call('HMGET', job_key, 'state', 'job', 'run')
if not record[1] or (tenant ~= '' and string.match(record[2] or '', '^(%S+) ') ~= tenant) then return {} end
local attempt, node = string.match(record[3] or '', '^(%d+) (%S+) ')
if record[1] == 'running' and node then
  local slots_key = key('slots', node)
  here(job_key, {slots_key})
  local value = redis.call('HGET', slots_key, job)
  redis.call('HDEL', slots_key, '-') -- which nobody has: see above
  if value then redis.call('HSET', slots_key, job, value .. ':c') end
  redis.call('HSET', job_key, 'state', 'cancelling')
  -- Protected: the stream only delivers, the next heartbeat would mend it.
  redis.pcall('XADD', key('dispatch', node), 'NOMKSTREAM', '*', 'c', job .. ' ' .. attempt)
end
return redis.call('HMGET', job_key, unpack(ARGV, 5))

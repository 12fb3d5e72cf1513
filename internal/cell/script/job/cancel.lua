-- cancel: ends a job that does not run, or asks the node that runs it to stop it. The slot stays
-- taken until the agent confirms.
--
-- Guarantee: changes only a job that has not ended, and only a job of the caller, and only if it is
-- still in the attempt and the state that the caller names. Repeating a call changes nothing. The
-- request reaches the agent by its stream. If that entry is lost, it reaches the agent by the mark
-- in the slot, which every heartbeat reads. The first write needs no memory, so that it works even
-- if Redis refuses other writes.
--
-- KEYS[1] jobs:<job>  hash   KEYS[2] due  zset   KEYS[3] finished  zset
-- KEYS[4] waiting  hash      KEYS[5] version:waiting  string
-- ARGV[1] job   ARGV[2] tenant, '' for any   ARGV[3] attempt, '' for any   ARGV[4] state, '' for any
-- ARGV[5..] fields of the record to return
-- Returns the fields' values, also of a job that is in another attempt or state, which stays as it
--   is; {} if there is no such job of this tenant
-- Foreign keys (slots, load, dispatch of the job's node, its gateway, its queue, later:<tenant>)
-- come from records.
-- Redis 7.0. Cost: O(1).
local job_key, due_key, finished_key, waiting_key, waiting_version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local job, tenant, in_attempt, in_state = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local used = 0
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/record.lua
-- include lib/end_job.lua
-- include lib/queue.lua
-- include lib/limit.lua
-- include lib/deliver.lua

local record = redis.call('HMGET', job_key, 'state', 'job', 'run', 'reply_to', 'gates', 'idem')
local owner, _, _, _, class = read_job(record[2])
if not record[1] or (tenant ~= '' and owner ~= tenant) then return {} end
local attempt, node = string.match(record[3] or '', '^(%d+) (%S+) ')
local meant = (in_attempt == '' or in_attempt == attempt) and (in_state == '' or in_state == record[1])
if meant and record[1] == 'running' and node then
  local slots_key = key('slots', node)
  here(job_key, {slots_key})
  local value = redis.call('HGET', slots_key, job)
  redis.call('HDEL', slots_key, '-') -- no job has this name; a write that needs no memory
  if value then redis.call('HSET', slots_key, job, value .. ':c') end
  redis.call('HSET', job_key, 'state', 'cancelling')
  -- Protected as the delivery is: if its load cannot be read, the node counts as one without a
  -- gateway.
  local load = value and redis.pcall('MGET', key('load', node))[1]
  if value then deliver(node, key('dispatch', node), load, 'c', job .. ' ' .. attempt) end
elseif meant and (record[1] == 'waiting' or record[1] == 'retry_wait' or record[1] == 'scheduled') then
  local keys = {}
  queue_keys(record[2], keys)
  limits_of[job], keyed[job] = record[5], record[6]
  if record[5] then limit_keys(record[5], keys) end
  if owner then keys[#keys + 1] = key('later', owner) end
  here(job_key, keys)
  sure('ZREM', due_key, job)
  if record[1] == 'scheduled' and owner then sure('ZREM', key('later', owner), job) end
  if class and record[1] == 'waiting' then leave_queue(class, job) end
  leave_limits(job, record[2])
  end_job(job, job_key, node or '-', attempt or 0, record[4], record[2], 'cancelled', '', '')
  index_finished()
end
return redis.call('HMGET', job_key, unpack(ARGV, 5))

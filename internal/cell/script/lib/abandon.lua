-- abandon: ends every job that a node owns and can no longer finish; a job whose
-- cancellation was under way ends cancelled, all others failed. The reaper scans
-- the ownership set and nothing else, so no job can hide.
local function abandon(slots_key, node, failure)
  local lost = {}
  local owned = redis.call('HGETALL', slots_key)
  for i = 1, #owned, 2 do
    local job = owned[i]
    if job ~= 'sum' then
      local job_key = key('jobs', job)
      local record = redis.call('HMGET', job_key, 'state', 'attempt', 'reply_to')
      if record[1] == 'cancelling' then
        finish(job, job_key, node, record[2], record[3], 'cancelled', '', '')
      elseif record[1] == 'running' then
        finish(job, job_key, node, record[2], record[3], 'failed', '', failure)
      end
      lost[#lost + 1] = job
    end
  end
  redis.call('DEL', slots_key)
  return lost
end

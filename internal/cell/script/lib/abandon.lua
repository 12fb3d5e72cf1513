-- abandon: ends every job that a node owns and can no longer finish; a job whose
-- cancellation was under way ends cancelled, all others failed. What belongs to the
-- epoch keep ('' for none) stays owned; returned are the lost jobs and the slots
-- kept. Further keys of the node, given behind, are deleted in the same command. The
-- reaper scans the ownership set and nothing else, so no job can hide. The first write
-- frees memory, so that it works where Redis refuses other writes.
local function abandon(slots_key, node, failure, keep, ...)
  local lost, kept, used = {}, {}, 0
  local owned = redis.call('HGETALL', slots_key)
  redis.call('DEL', slots_key, ...)
  for i = 1, #owned, 2 do
    local job, value = owned[i], owned[i + 1]
    local attempt, epoch, slots = string.match(value, '^(%d+):([^:]*):(%d+)')
    if epoch == keep then
      used = used + tonumber(slots)
      kept[#kept + 1] = {job, value}
    elseif job ~= 'sum' then
      local job_key = key('jobs', job)
      local record = redis.call('HMGET', job_key, 'state', 'run', 'reply_to', 'job')
      local last = string.match(record[2] or '', '^(%d+) ')
      if last == attempt and record[1] == 'cancelling' then
        finish(job, job_key, node, attempt, record[3], record[4], 'cancelled', '', '')
      elseif last == attempt and record[1] == 'running' then
        finish(job, job_key, node, attempt, record[3], record[4], 'failed', '', failure)
      end
      lost[#lost + 1] = job
    end
  end
  index_finished()
  for _, pair in ipairs(kept) do redis.call('HSET', slots_key, pair[1], pair[2], 'sum', used) end
  return lost, used
end

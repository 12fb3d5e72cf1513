-- abandon: takes every job of owned, the content of a node's slots hash (HGETALL), from the node. A
-- job that was being cancelled ends as cancelled or expired. All others go to their next attempts;
-- counted is true if that is a failure. Jobs of the epoch keep ('' for none) stay owned. Returns
-- the lost jobs, and the slots in use by those kept. Further keys of the node, given as the last
-- arguments, are deleted in the same command. A node owns nothing outside of its slots hash, so no
-- job is missed. The first write frees memory, so that it works even if Redis refuses other writes;
-- all records are read before.
-- Needs: end_job, here, index_finished, key, keyed, leave_limits, limit_keys, limits_of, note_attempt,
--   queue_keys, retry
-- Defines: abandon
local function abandon(owned, slots_key, node, failure, counted, keep, ...)
  local lost, attempts, job_keys, kept, in_use = {}, {}, {}, false, 0
  for i = 1, #owned, 2 do
    local job = owned[i]
    local attempt, epoch, slots = string.match(owned[i + 1], '^(%d+):([^:]*):(%d+)')
    if epoch == keep then
      kept, in_use = true, in_use + tonumber(slots)
    elseif job ~= 'sum' then
      local n = #lost + 1
      lost[n], attempts[job], job_keys[n] = job, attempt, key('jobs', job)
    end
  end
  here(slots_key, job_keys)
  local records, keys = {}, {}
  for i, job_key in ipairs(job_keys) do -- protected: a key of another type affects its own job, not the node
    local record = redis.pcall('HMGET', job_key, 'state', 'run', 'reply_to', 'job', 'fails', 'why', 'gates', 'idem')
    records[i], keyed[lost[i]] = record, record[8]
    queue_keys(record[4], keys)
    if record[7] then
      limits_of[lost[i]] = record[7]
      limit_keys(record[7], keys)
    end
  end
  here(slots_key, keys)
  if kept then
    redis.call('DEL', ...)
    for i = 1, #lost, 1000 do redis.call('HDEL', slots_key, unpack(lost, i, math.min(i + 999, #lost))) end
    redis.call('HSET', slots_key, 'sum', in_use)
  else
    redis.call('DEL', slots_key, ...)
  end
  for i, job in ipairs(lost) do
    local job_key, attempt, record = job_keys[i], attempts[job], records[i]
    local last = string.match(record[2] or '', '^(%d+) ')
    if last == attempt and record[1] == 'cancelling' then
      local state = record[6] == 'expired' and 'expired' or 'cancelled'
      leave_limits(job, record[4])
      note_attempt(job_key, node, attempt, state, '')
      end_job(job, job_key, node, attempt, record[3], record[4], state, '', '')
    elseif last == attempt and record[1] == 'running' then
      retry(job, job_key, node, attempt, record[3], record[4], record[5], counted and 'lost' or 'handed_back', failure, 0)
    end
  end
  index_finished()
  return lost, in_use
end

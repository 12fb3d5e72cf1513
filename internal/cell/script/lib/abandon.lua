-- abandon: takes every job of owned, what a node's slots hash holds (HGETALL), from the
-- node: a job whose cancellation was under way ends so, all others go to their next
-- attempts; counted says whether that is a failure of theirs. What belongs to the
-- epoch keep ('' for none) stays owned; returned are the lost jobs and the slots
-- kept. Further keys of the node, given behind, are deleted in the same command. The
-- reaper scans the ownership set and nothing else, so no job can hide. The first write
-- frees memory, so that it works where Redis refuses other writes; before it, all
-- records are looked for.
-- Needs: again, finish, gate_keys, gated, here, index_finished, key, line_keys
-- Defines: abandon
local function abandon(owned, slots_key, node, failure, counted, keep, ...)
  local lost, attempts, job_keys, kept, used = {}, {}, {}, false, 0
  for i = 1, #owned, 2 do
    local job = owned[i]
    local attempt, epoch, slots = string.match(owned[i + 1], '^(%d+):([^:]*):(%d+)')
    if epoch == keep then
      kept, used = true, used + tonumber(slots)
    elseif job ~= 'sum' then
      local n = #lost + 1
      lost[n], attempts[job], job_keys[n] = job, attempt, key('jobs', job)
    end
  end
  here(slots_key, job_keys)
  local records, lines = {}, {}
  for i, job_key in ipairs(job_keys) do -- protected: one that an operator has made something else of is lost, not the node
    records[i] = redis.pcall('HMGET', job_key, 'state', 'run', 'reply_to', 'job', 'fails', 'why', 'gates')
    line_keys(records[i][4], lines)
    if records[i][7] then
      gated[lost[i]] = records[i][7]
      gate_keys(records[i][7], lines)
    end
  end
  here(slots_key, lines)
  if kept then
    redis.call('DEL', ...)
    for i = 1, #lost, 1000 do redis.call('HDEL', slots_key, unpack(lost, i, math.min(i + 999, #lost))) end
    redis.call('HSET', slots_key, 'sum', used)
  else
    redis.call('DEL', slots_key, ...)
  end
  for i, job in ipairs(lost) do
    local job_key, attempt = job_keys[i], attempts[job]
    local record = records[i]
    local last = string.match(record[2] or '', '^(%d+) ')
    if last == attempt and record[1] == 'cancelling' then
      finish(job, job_key, node, attempt, record[3], record[4], record[6] == 'expired' and 'expired' or 'cancelled', '', '')
    elseif last == attempt and record[1] == 'running' then
      again(job, job_key, node, attempt, record[3], record[4], record[5], counted, failure, 0)
    end
  end
  index_finished()
  return lost, used
end

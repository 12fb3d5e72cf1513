-- retry: sends a job to its next attempt, at once or after delay (ms). ended says how this one ended:
-- handed_back if it was no failure of the job, otherwise failed or lost. If that is the last failure
-- that the job may have, the job is dead. It expires if no time is left. failure is JSON, kept in
-- the record. node is the node of the attempt; for a moment the job avoids it.
-- Each failure that is not the last counts in the field retries of ended, which is never read to decide.
-- Needs: PREFIX, TAG, at, count_waiting, due_key, end_job, front_score, join_queue, key, leave_limits, limits_of,
--   note_attempt, now, read_job, sure
-- Defines: retry
local function retry(job, job_key, node, attempt, reply_to, static, fails, ended, failure, delay)
  local counted = ended ~= 'handed_back'
  leave_limits(job, static)
  note_attempt(job_key, node, attempt, ended, failure)
  local tenant, _, _, _, class, priority, attempts, deadline, definition = read_job(static)
  if not tenant then -- of another form: the job cannot be placed any more
    end_job(job, job_key, node, attempt, reply_to, static, 'failed', '', failure)
    return
  end
  local count = tonumber(string.match(fails or '', '^(%d+) ') or '0')
  if counted then count = count + 1 end
  deadline = tonumber(deadline)
  redis.call('HSET', job_key, 'fails', count .. ' ' .. at .. ' ' .. node)
  if counted and count >= tonumber(attempts) then
    end_job(job, job_key, node, attempt, reply_to, static, 'dead', '', failure)
    return
  end
  if deadline > 0 and deadline <= now + delay then
    end_job(job, job_key, node, attempt, reply_to, static, 'expired', '', failure)
    return
  end
  if counted then redis.pcall('HINCRBY', PREFIX .. ':ended' .. TAG, 'retries', 1) end -- protected like the indexes of ends
  if limits_of[job] then count_waiting(job, limits_of[job]) end
  if delay > 0 then
    redis.call('HSET', job_key, 'state', 'retry_wait', 'error', failure)
    sure('ZADD', due_key, string.format('%.0f', now + delay), job)
  else
    redis.call('HSET', job_key, 'state', 'waiting', 'error', failure)
    join_queue(job, class, definition, front_score(class, priority))
  end
  if reply_to and reply_to ~= '' then
    -- Protected: this is only a hint. If it is lost, the sweep finds the job.
    redis.pcall('XADD', key('replies', reply_to), 'NOMKSTREAM', '*', 'w', job .. ' ' .. class)
  end
end

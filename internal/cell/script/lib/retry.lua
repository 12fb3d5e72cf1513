-- again: sends a job whose attempt did not end it on to its next one: at once, or after
-- delay (ms). A failure that counts ends it as dead when it was the last that it may have,
-- and a job without time left expires. failure is JSON, kept in the record. node is where
-- the attempt was; for a moment other nodes go first.
-- Needs: at, due_key, finish, front_score, gated, job_parts, key, now, quit, stand_in_line, sure,
--   waits_again
-- Defines: again
local function again(job, job_key, node, attempt, reply_to, static, fails, counted, failure, delay)
  local tenant, slots, class, priority, limit, deadline, definition = job_parts(static)
  if not tenant then -- an operator's edit: it cannot be placed any more
    finish(job, job_key, node, attempt, reply_to, static, 'failed', '', failure)
    return
  end
  local count = tonumber(string.match(fails or '', '^(%d+) ') or '0')
  if counted then count = count + 1 end
  redis.call('HSET', job_key, 'fails', count .. ' ' .. at .. ' ' .. node)
  if counted and count >= limit then
    finish(job, job_key, node, attempt, reply_to, static, 'dead', '', failure)
    return
  end
  if deadline > 0 and deadline <= now + delay then
    finish(job, job_key, node, attempt, reply_to, static, 'expired', '', failure)
    return
  end
  if gated[job] then
    quit(job, gated[job], static)
    waits_again(job, gated[job])
  end
  if delay > 0 then
    redis.call('HSET', job_key, 'state', 'retry_wait', 'error', failure)
    sure('ZADD', due_key, string.format('%.0f', now + delay), job)
  else
    redis.call('HSET', job_key, 'state', 'waiting', 'error', failure)
    stand_in_line(job, class, definition, front_score(class, priority))
  end
  if reply_to and reply_to ~= '' then
    -- Protected: a hint. Where it is lost the sweep finds the job.
    redis.pcall('XADD', key('replies', reply_to), 'NOMKSTREAM', '*', 'w', job .. ' ' .. class)
  end
end

-- end_plain_job: ends the first attempt of a job for good as end_job does, without functions. told is
-- the part of its reply about time and node: ' finished-at used 0'.
-- Needs: RETENTION, at, call, failed, failure, job, job_key, kept, longest, news, node, now_us, prefix, record,
--   reply_to, result, state, tag, told, try
-- Sets: failed, kept, longest
-- Defines: deadline, retention
-- As read_job, at a third of its cost.
local retention, deadline = string.match(record[3] or '', '^[^ ]+ [^ ]+ [^ ]+ ([1-9]%d*) [^ ]+ . [^ ]+ (%d+) ')
if deadline ~= '0' then try('ZREM', prefix .. ':due' .. tag, job) end -- protected as in end_job
if retention ~= kept then
  longest, kept = math.max(longest, tonumber(retention) or 0), retention
end
if failure ~= '' then -- as note_attempt does
  local begun, code = string.match(call('HGET', job_key, 'run') or '', ' (%d+)$') or '0', string.match(failure, '^{"code":"([%w_.:/-]+)"') or '-'
  call('HSET', job_key, 'state', state, 'finished_at_ms', at, 'error', failure,
    'attempts', '1 ' .. node .. ' ' .. begun .. ' ' .. at .. ' ' .. state .. ' ' .. string.sub(code, 1, 64))
  failed = failed or {}
  local k = #failed
  failed[k + 1], failed[k + 2] = now_us + k / 2, job
elseif result ~= '' then
  call('HSET', job_key, 'state', state, 'finished_at_ms', at, 'result', result)
else
  call('HSET', job_key, 'state', state, 'finished_at_ms', at)
end
call('PEXPIRE', job_key, retention or RETENTION)
if record[5] then -- as release_key does
  local till, name = string.match(record[5], '^(%d+) (%S+)$')
  if name then try('PEXPIRE', prefix .. ':idem' .. tag .. ':' .. name, string.format('%.0f', math.max(till - at, 60000))) end
end
if reply_to and reply_to ~= '' then
  local entry, head = news[reply_to], job .. ' 1 ' .. node .. ' ' .. state .. told
  if entry then
    local k = #entry
    entry[k + 1], entry[k + 2], entry[k + 3], entry[k + 4] = 'j', head, 'r', result
  else
    entry = {'j', head, 'r', result}
    news[reply_to] = entry
  end
  if failure ~= '' then
    local k = #entry
    entry[k + 1], entry[k + 2] = 'e', failure
  end
end

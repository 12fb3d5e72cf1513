-- next_attempts: frees the slots of the attempts that end. Jobs that have not ended go to their
-- next attempts. The others leave their limits, which may let limited jobs return to their queues.
-- Needs: due_key, freed, here, items, leave_limits, limit_keys, limits_of, node, queue_keys, records,
--   retries, retry, slots_key, waiting_key, waiting_version_key, with_limits
if retries or with_limits then
  local keys = {due_key, waiting_key, waiting_version_key}
  for n, record in pairs(records) do
    if ARGV[6 * n + 4] ~= '' then queue_keys(record[3], keys) end
    if record[4] then limit_keys(record[4], keys) end
  end
  here(slots_key, keys)
end
redis.call('HDEL', slots_key, unpack(freed))
for n = 1, items do
  local record, item = records[n], 6 * n - 1
  if record then
    local job, pause = ARGV[item], ARGV[item + 5]
    limits_of[job] = record[4]
    if record[1] == 'running' and pause ~= '' then
      local fails, ended = redis.call('HGET', KEYS[6 + n], 'fails'), pause == 'h' and 'handed_back' or 'failed'
      retry(job, KEYS[6 + n], node, ARGV[item + 1], record[2], record[3], fails, ended, ARGV[item + 4], tonumber(pause) or 0)
      records[n] = false
    else
      leave_limits(job, record[3])
    end
  end
end

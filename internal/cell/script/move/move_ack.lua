-- move_ack: settles the moves of jobs that came to this cell, once their records in the other cell
-- point to it. From then on the records here are kept for their own retention. It returns how long
-- that still is.
--
-- Guarantee: changes only how long a record is kept. Repeating a call changes nothing.
--
-- KEYS[1] finished  zset: only names the slot
-- ARGV[1..] for each item: job, hop
-- Returns {now, ms, ...}: how long the record is still kept, -1 for a job that has not ended, -2
--   for a job that is gone
-- Foreign keys (jobs) are of this cell. They are not in KEYS because some may not exist, and there
--   may be none.
-- Redis 7.0. Cost: O(items).
local finished_key = KEYS[1]
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/terminal_states.lua
-- include lib/record.lua

local keys = {}
for i = 1, #ARGV, 2 do keys[#keys + 1] = key('jobs', ARGV[i]) end
here(finished_key, keys)
local reply = {now}
for i, job_key in ipairs(keys) do
  local record, hop = redis.pcall('HMGET', job_key, 'state', 'hop', 'keep', 'job', 'finished_at_ms'), tonumber(ARGV[2 * i])
  local here_by = not record.err and record[1] and tonumber(record[2] or '0') or -1
  if here_by < hop then
    reply[i + 1] = -2
  else
    if here_by == hop and record[3] then
      local dead = record[1] == 'dead' and redis.pcall('HGET', PREFIX .. ':ended' .. TAG, 'dead_ms') -- as in lib/end_job.lua
      dead = type(dead) == 'string' and string.find(dead, '^%d+$') and tonumber(dead) or 0
      local keep = string.format('%.0f', math.max(tonumber(record[3]), MOVE_RETENTION, dead))
      local tenant, slots, submitted_at, _, class, priority, attempts, deadline, definition = read_job(record[4])
      redis.call('HDEL', job_key, 'keep')
      if tenant then
        redis.call('HSET', job_key, 'job', write_job(tenant, slots, submitted_at, keep, class, priority, attempts, deadline, definition))
      end
      if record[5] then redis.call('PEXPIRE', job_key, keep) end
    end
    reply[i + 1] = redis.call('PTTL', job_key)
  end
end
return reply

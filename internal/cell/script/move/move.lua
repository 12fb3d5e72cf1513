-- move: takes the first jobs out of the queue of their class, because they are to go to another
-- cell. After that they are in no queue and are due at no time. Replicas find them in moves until
-- they have arrived.
--
-- Guarantee: a moving job has one target, which its record names, or '?' if a key of the job
-- decides (see move_note.lua). Repeating a call moves further jobs. A job whose last move is not
-- settled yet stays where it is.
--
-- KEYS[1] waiting  hash   KEYS[2] version:waiting  string   KEYS[3] due  zset
-- KEYS[4] moves  zset: job -> when a replica must look at it next, ms
-- ARGV[1] class   ARGV[2] cell to go to   ARGV[3] most slots that a job may need there
-- ARGV[4] how many of the queue to leave out at its beginning   ARGV[5] how many to look at
-- Returns {jobs that move, jobs that were looked at and stay, '1' if there are more behind}
-- Foreign keys (the queue, its jobs) are of this cell.
-- Redis 7.0. Cost: O(jobs looked at).
local waiting_key, waiting_version_key, due_key, moves_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local class, target, room, from, most = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/record.lua
-- include lib/queue.lua

here(waiting_key, {key('waiting', class), key('fair', class), due_key, moves_key, waiting_version_key})
local jobs, keys, records = sure('ZRANGE', key('waiting', class), from, from + most - 1), {}, {}
for i, job in ipairs(jobs) do keys[i] = key('jobs', job) end
here(waiting_key, keys)
for i, job_key in ipairs(keys) do
  -- Protected: a key of another type is no job.
  records[i] = redis.pcall('HMGET', job_key, 'state', 'job', 'keep', 'hop', 'gates', 'node_by')
end
local moved, stayed = 0, 0
for i, job in ipairs(jobs) do
  local record = records[i]
  local tenant, slots, _, _, _, _, _, deadline = read_job(record[2])
  slots, deadline = tonumber(slots), tonumber(deadline)
  if record.err or record[1] ~= 'waiting' or not tenant then
    leave_queue(class, job) -- of another form, or deleted
  elseif slots > room or record[3] or deadline > 0 and deadline <= now then
    stayed = stayed + 1
  else
    local to = string.find(record[5] or '', ' k:', 1, true) and '?' or target
    redis.call('HSET', keys[i], 'state', 'moving', 'move', to .. ' ' .. (record[4] or '0'))
    sure('ZADD', moves_key, at, job)
    if deadline > 0 or record[6] then sure('ZREM', due_key, job) end
    -- Protected: if the job keeps counting, limits.lua corrects that.
    for name in string.gmatch(record[5] or '', '%a:%S+') do redis.pcall('SREM', key('gate', name), job) end
    leave_queue(class, job)
    moved = moved + 1
  end
end
return {moved, stayed, #jobs == most and '1' or '0'}

-- moves: reads the records that a replica must look at, either of moving jobs or of jobs that have
-- moved.
--
-- Guarantee: changes no job. It removes entries that no longer belong into the index.
--
-- KEYS[1] moves  zset, or moved  zset
-- ARGV[1] how long ago the time to look must have come, ms   ARGV[2] most jobs
-- ARGV[3..] jobs to look at, at any time; none: all whose time has come
-- Returns {'1' if there are more, job, state (moving or moved), where to, fields of the record and
--   their values, ...}, four values a job; fields only of a job that is moving
-- Foreign keys (jobs) are of this cell.
-- Redis 7.0. Cost: O(jobs read).
local moves_key = KEYS[1]
local late, most = tonumber(ARGV[1]), tonumber(ARGV[2])
local BYTES = 1048576 -- about how many bytes of records a call reads
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/sure.lua

local jobs, keys, gone, size = {unpack(ARGV, 3)}, {}, {}, 0
if #jobs == 0 then jobs = sure('ZRANGEBYSCORE', moves_key, '-inf', string.format('%.0f', now - late), 'LIMIT', 0, most) end
for i, job in ipairs(jobs) do keys[i] = key('jobs', job) end
here(moves_key, keys)
local reply = {#jobs == most and '1' or '0'}
for i, job in ipairs(jobs) do
  -- Protected: a key of another type is no job.
  local record = redis.pcall('HMGET', keys[i], 'state', 'move')
  local found = not record.err and record[2] and string.find(record[2], '^[%d?]+ %d+$')
  if found and record[1] == 'moving' then
    if size >= BYTES then
      reply[1] = '1'
      break
    end
    local fields, n = redis.call('HGETALL', keys[i]), #reply
    for _, text in ipairs(fields) do size = size + #text end
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = job, record[1], record[2], fields
  elseif found and record[1] == 'moved' then
    local n = #reply
    reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = job, record[1], record[2], {}
  else
    gone[#gone + 1] = job
  end
end
if #gone > 0 then sure('ZREM', moves_key, unpack(gone)) end
return reply

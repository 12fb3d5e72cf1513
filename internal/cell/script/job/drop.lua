-- drop: forgets a job that has ended, before its retention is over.
--
-- Guarantee: drops only a job that has ended, and only a job of the caller. Repeating a call finds
-- no such job. A job that came from another cell is dropped only when no call can bring it a second
-- time, see move_in.lua. Every write frees memory. The job's idempotency key becomes free, unless
-- the job was moved away from the cell of the key.
--
-- KEYS[1] jobs:<job>  hash   KEYS[2] finished  zset
-- ARGV[1] job   ARGV[2] tenant, '' for any   ARGV[3..] fields of the record to return
-- Foreign keys (idem, ended:<state>) are of this cell.
-- Returns the fields' values before the call, also of a job that has not ended; {} if there is no
-- such
--   job of this tenant; the error UNSETTLED if the job's move is not over
-- Redis 7.0. Cost: O(log jobs that have ended).
local job_key, finished_key = KEYS[1], KEYS[2]
local job, tenant = ARGV[1], ARGV[2]
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/record.lua
-- include lib/terminal_states.lua

local record = redis.call('HMGET', job_key, 'state', 'job', 'hop', 'keep', 'finished_at_ms', 'idem', 'known')
if not record[1] or (tenant ~= '' and read_job(record[2]) ~= tenant) then return {} end
local fields = redis.call('HMGET', job_key, unpack(ARGV, 3))
if not ENDED[record[1]] then return fields end
if record[4] or record[3] and now - (tonumber(record[5]) or 0) < MOVE_RETENTION then return redis.error_reply('UNSETTLED ' .. job) end
-- The index goes first: a record without its entry expires by itself, and while a hash slot
-- migrates a key that was just deleted cannot be read.
redis.call('ZREM', finished_key, job)
redis.pcall('ZREM', key('ended', record[1]), job) -- protected: the index may be on another server
redis.call('DEL', job_key)
-- Protected: the key may be on another server while a hash slot migrates.
local idem = record[6] and key('idem', string.match(record[6], ' (%S+)$') or '')
local owner = idem and redis.pcall('GET', idem)
if type(owner) == 'string' then
  owner = string.match(owner, '^(%S+) ')
  if owner == job or owner == record[7] then redis.pcall('DEL', idem) end
end
return fields

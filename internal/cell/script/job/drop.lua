-- drop: forgets a job that has ended, before its retention is over.
--
-- Guarantee: only one that has ended, and only the caller's; the same call again finds no such
-- job. One that came from another cell is dropped when nobody can be about to bring it once more, see move_in.lua. Every write frees memory. What an idempotency key says of the job stays: it names a job
-- that is not kept any more.
--
-- KEYS[1] jobs:<job>  hash   KEYS[2] finished  zset
-- ARGV[1] job   ARGV[2] tenant, '' for any   ARGV[3..] fields of the record to return
-- Returns the fields' values, as they were, of a job that has not ended too; {} when there is no such job of this tenant;
--   the error UNSETTLED of one whose move is not over
-- Redis 7.0. Cost: O(log jobs that have ended).
local job_key, finished_key = KEYS[1], KEYS[2]
local job, tenant = ARGV[1], ARGV[2]
local MOVES = 120000 -- ms for which a job that came from another cell is kept: moveRetention
-- include lib/clock.lua

local record = redis.call('HMGET', job_key, 'state', 'job', 'hop', 'keep', 'finished_at_ms')
if not record[1] or (tenant ~= '' and string.match(record[2] or '', '^(%S+) ') ~= tenant) then return {} end
local state = record[1]
local ended = state == 'succeeded' or state == 'failed' or state == 'cancelled' or state == 'expired' or state == 'dead'
local fields = redis.call('HMGET', job_key, unpack(ARGV, 3))
if not ended then return fields end
if record[4] or record[3] and now - (tonumber(record[5]) or 0) < MOVES then return redis.error_reply('UNSETTLED ' .. job) end
-- The index first: a record without its entry expires by itself, and while a hash slot
-- migrates nothing can be asked of a key that was just deleted.
redis.call('ZREM', finished_key, job)
redis.call('DEL', job_key)
return fields

-- requeued: notes in the record of a job that it was submitted again as another job.
--
-- Guarantee: makes no record, and changes none of a job that has not ended. Of several calls the
-- last one counts.
--
-- KEYS[1] jobs:<job>  hash
-- ARGV[1] id of the other job
-- Returns 1; 0: there is no such record of a job that has ended
-- Redis 7.0. Cost: O(1).
local job_key, as = KEYS[1], ARGV[1]
-- include lib/terminal_states.lua

if not ENDED[redis.call('HGET', job_key, 'state')] then return 0 end
redis.call('HSET', job_key, 'requeued_as', as)
return 1

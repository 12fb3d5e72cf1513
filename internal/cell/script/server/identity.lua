-- identity: returns a name for the history that this server's data belongs to. A restart or a
-- failover changes it: the last writes may be lost and their revisions used again. It is a script,
-- because on a cluster only a key selects the server.
--
-- Guarantee: it writes at most that the history of the cell's records has changed, and when, for
-- replicas that start later. A cell without records stays without. A server that refuses writes
-- answers all the same.
--
-- KEYS[1] version:nodes  hash
-- Returns run id and replication id as one text; '' if the server does not answer
-- Redis 7.0. Cost: O(1), about 30 us.
-- include lib/clock.lua
-- include lib/server.lua

local history = server_history()
local noted = redis.call('HMGET', KEYS[1], 'generation', 'history')
if history ~= '' and noted[1] and noted[2] ~= history then
  -- The first note is no change, so it has no time.
  redis.pcall('HSET', KEYS[1], 'history', history, 'history_at_ms', noted[2] and at or '0')
end
return history

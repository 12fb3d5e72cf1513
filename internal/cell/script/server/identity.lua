-- identity: names the history that this server's data belongs to. It differs after a restart or a
-- failover, when the last writes may be lost and their revisions used again. A script, because on a
-- cluster only a key chooses the server.
--
-- Guarantee: writes only that the cell's records are of another history than before, and since
-- when, for replicas that start later. A cell without records stays without; a server that refuses
-- writes answers all the same.
--
-- KEYS[1] version:nodes  hash
-- Returns run id and replication id as one text; '' where the server does not answer
-- Redis 7.0. Cost: O(1), about 30 us.
-- include lib/clock.lua
-- include lib/server.lua

local history = server_history()
local noted = redis.call('HMGET', KEYS[1], 'generation', 'history')
if history ~= '' and noted[1] and noted[2] ~= history then
  -- The first note is no change: it does not say when.
  redis.pcall('HSET', KEYS[1], 'history', history, 'history_at_ms', noted[2] and at or '0')
end
return history

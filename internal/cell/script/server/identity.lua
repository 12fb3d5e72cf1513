-- identity: names the history that this server's data belongs to. It differs after a restart or a
-- failover, when the last writes may be lost and their revisions used again. A script, because on a
-- cluster only a key chooses the server.
--
-- Guarantee: read-only.
--
-- KEYS[1] version:nodes  hash: only names the server
-- Returns run id and replication id as one text; '' where the server does not answer
-- Redis 7.0. Cost: O(1), about 30 us.
-- include lib/server.lua

return server_history()

-- cells: records on each server how many cells a system has and how many servers share them. The
-- first start of a replica decides.
--
-- Guarantee: what is recorded is never changed. Repeating a call only reads.
--
-- KEYS[1] version:cells   hash    untagged: one on each standalone server, one on a cluster
-- ARGV[1] cells   ARGV[2] servers   ARGV[3] index of this server
-- Returns {cells, servers, index of this server}, as recorded
-- Redis 7.0. Cost: O(1).
local cells_key = KEYS[1]
local found = redis.call('HMGET', cells_key, 'cells', 'servers', 'server')
if found[1] then return {found[1], found[2] or '', found[3] or ''} end
local cells, servers, server = ARGV[1], ARGV[2], ARGV[3]
redis.call('HSET', cells_key, 'cells', cells, 'servers', servers, 'server', server)
return {cells, servers, server}

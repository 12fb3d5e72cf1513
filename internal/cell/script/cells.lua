-- cells: records how many cells a system has and over how many servers they are
-- spread, on each server, or only reads what is recorded; the first start of a replica
-- decides.
--
-- Guarantee: what is recorded is never changed; the same call again only reads.
--
-- KEYS[1] version:cells   hash    untagged: one on each standalone server, one on a cluster
-- KEYS[2] version:schema  string  untagged, left out on a cluster, where it has a slot of its own
-- ARGV[1] cells   ARGV[2] servers   ARGV[3] index of this server
-- ARGV[4] 'w' to record them where nothing is recorded yet, '' to write nothing
-- Returns {cells, servers, index of this server}, as recorded; {} where nothing is
-- Redis 7.0. Cost: O(1).
local cells_key = KEYS[1]
local found = redis.call('HMGET', cells_key, 'cells', 'servers', 'server')
if found[1] then return {found[1], found[2] or '', found[3] or ''} end
local cells, servers, server, write = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == 'w'
-- Data of a release that knew one cell only.
local earlier = #KEYS > 1 and redis.call('EXISTS', KEYS[2]) == 1
if earlier then cells, servers, server = '1', '1', '0' end
if not write then return earlier and {cells, servers, server} or {} end
redis.call('HSET', cells_key, 'cells', cells, 'servers', servers, 'server', server)
return {cells, servers, server}

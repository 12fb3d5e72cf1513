-- serves: tells the cell of the version of the pools' configuration that a replica
-- chooses by: what nodes were found to serve under another one no longer counts.
--
-- Guarantee: the same call again changes nothing. The last one counts, since versions begin
-- anew where their counter is lost.
--
-- KEYS[1] version:serves  string
-- ARGV[1] version
-- Returns 1
-- Redis 7.0. Cost: O(1).
if redis.call('GET', KEYS[1]) ~= ARGV[1] then redis.call('SET', KEYS[1], ARGV[1]) end
return 1

-- serves: records in the cell by which version of the pools' configuration a replica chooses nodes.
-- What nodes were found to serve under another version no longer counts.
--
-- Guarantee: repeating a call changes nothing. Within one generation of the versions' counter the
-- version does not go back: a late replica, or a late call, cannot bring back what was paused
-- since. Without a generation the last call counts.
--
-- KEYS[1] version:serves  string   KEYS[2] version:serves-of  string: generation of it
-- ARGV[1] version   ARGV[2] generation, '' for none
-- Returns 1, or 0 if a newer version was recorded
-- Redis 7.0. Cost: O(1).
local version, generation = ARGV[1], ARGV[2]
local told = redis.call('GET', KEYS[1])
local of = redis.pcall('GET', KEYS[2])
if generation ~= '' and of == generation and told and string.find(told, '^%d+$') and tonumber(told) > tonumber(version) then return 0 end
if told ~= version then redis.call('SET', KEYS[1], version) end
if of ~= generation then redis.call('SET', KEYS[2], generation) end
return 1

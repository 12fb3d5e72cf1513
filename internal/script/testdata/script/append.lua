-- append: adds values to a list, for tests of this package.
--
-- Guarantee: all values or none.
--
-- KEYS[1] list  list
-- ARGV[1..] values
-- Returns {Redis' time in ms, length of the list}
-- Redis 7.0. Cost: O(values).
local list_key = KEYS[1]
-- include lib/clock.lua
-- include lib/push.lua
return {now, push(list_key, ARGV)}

-- length: reads the length of a list, for tests of this package.
--
-- Guarantee: read-only.
--
-- KEYS[1] list  list
-- Returns the length
-- Redis 7.0. Cost: O(1).
return redis.call('LLEN', KEYS[1])

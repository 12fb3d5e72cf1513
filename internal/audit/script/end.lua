-- end: records the outcome of a change.
--
-- Guarantee: the entry is complete even if the record of its begin was lost.
--
-- KEYS[1] audit:open  hash, or audit:own-open  hash: change -> when it began (ms), entry
-- KEYS[2] audit:changes  stream, or audit:own  stream: entry, capped
-- ARGV[1] change   ARGV[2] entry, a JSON object   ARGV[3] about how many entries the stream keeps
-- Returns 1
-- Redis 7.0. Cost: O(1).
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[3], '*', 'entry', ARGV[2])
return 1

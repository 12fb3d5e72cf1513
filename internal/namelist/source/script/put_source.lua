-- put_source: writes where a list's ids come from, if that is still as the caller saw it.
--
-- Guarantee: only a caller that saw the newest state changes it; so a run has one holder.
--
-- KEYS[1] lists:sources  zset   KEYS[2] lists:source:<list>  string   KEYS[3] lists:index  hash
-- ARGV[1] list   ARGV[2] the state that the caller saw, '' for none   ARGV[3] the new state, '' to remove it
-- ARGV[4] when the list is looked at, ms; 'inf' for never
-- ARGV[5] the most lists that have a source
-- Returns {1, at} done; {3, at, state} the state is another one; {4, at} there is no such list; {5, at} that many
--   lists have a source
-- Reads: scheduler:lists:index
-- Redis 7.0. Cost: O(log(lists)).
local sources_key, record_key, index_key = KEYS[1], KEYS[2], KEYS[3]
local list, seen, new, look = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/at.lua
local state = redis.call('GET', record_key) or ''
if state ~= seen then return {3, at, state} end
if new == '' then
  redis.call('ZREM', sources_key, list)
  redis.call('DEL', record_key)
  return {1, at}
end
if redis.call('HEXISTS', index_key, list) == 0 then return {4, at} end
if state == '' and redis.call('ZCARD', sources_key) >= tonumber(ARGV[5]) then return {5, at} end
redis.call('SET', record_key, new)
redis.call('ZADD', sources_key, look, list)
return {1, at}

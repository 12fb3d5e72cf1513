-- link: reads which epoch a node has and how it is connected.
--
-- Guarantee: read-only.
--
-- KEYS[1] nodes:<node>  hash   KEYS[2] load:<node>  string
-- Returns {now, epoch, registered_at_ms, load}; '' for each that does not exist
-- Redis 7.0. Cost: O(1).
local profile_key, load_key = KEYS[1], KEYS[2]
-- include lib/at.lua
local profile = redis.call('HMGET', profile_key, 'epoch', 'registered_at_ms')
return {at, profile[1] or '', profile[2] or '', redis.call('MGET', load_key)[1] or ''}

-- request_close: rejects a request, or withdraws it for its author.
--
-- Guarantee: of several callers that decide, one wins. The time is Redis' own.
--
-- KEYS[1] lists:requests:<tenant>  hash
-- ARGV[1] id   ARGV[2] who   ARGV[3] comment   ARGV[4] '1' if the caller may reject requests of others
-- Returns {1, request} done, {4} there is no such request, {6, why} it cannot be decided
-- Redis 7.0. Cost: O(1).
local requests_key = KEYS[1]
local id, by, comment, others = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/clock.lua
local text = redis.call('HGET', requests_key, id)
if not text then return {4} end
local r = cjson.decode(text)
if r.state ~= 'pending' then return {6, r.state} end
if r.until_ms <= now then return {6, 'lapsed'} end
local own = by == r.author or string.sub(r.author, 1, #by + 1) == by .. '/'
if not own and others ~= '1' then return {6, 'other'} end
r.state, r.decided_by, r.comment, r.decided_ms = own and 'withdrawn' or 'rejected', by, comment, now
text = cjson.encode(r)
redis.call('HSET', requests_key, id, text)
redis.call('HDEL', requests_key, id .. ':change')
return {1, text}

-- request_open: keeps a change that waits for approval, and what is needed to make it. It drops the
-- oldest closed requests of the tenant.
--
-- Guarantee: the open requests of a tenant are bounded. The same change by the same author is one
-- request. The time is Redis' own. Redis refuses the first write when it is out of memory.
--
-- KEYS[1] lists:requests:<tenant>  hash   KEYS[2] lists:requesters  hash
-- ARGV[1] tenant   ARGV[2] id   ARGV[3] request, JSON without times   ARGV[4] change, JSON
-- ARGV[5] the most open requests   ARGV[6] life in ms   ARGV[7] how many closed ones are kept
-- ARGV[8..] ids of open requests whose targets have moved on: they are closed
-- Returns {1, request} kept, {2, request} it is there already, {5, open} there are too many open ones
-- Redis 7.0. Cost: O(requests of the tenant).
local requests_key, requesters_key = KEYS[1], KEYS[2]
local tenant, id, text, change, most, life, kept = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
-- include lib/clock.lua
local new, moved, open, closed = cjson.decode(text), {}, 0, {}
for i = 8, #ARGV do moved[ARGV[i]] = true end
for _, field in ipairs(redis.call('HKEYS', requests_key)) do
  if not string.find(field, ':', 1, true) then
    local is = redis.call('HGET', requests_key, field)
    local r = cjson.decode(is)
    if r.state == 'pending' and moved[field] then
      r.state, r.decided_ms = 'conflict', now
      redis.call('HSET', requests_key, field, cjson.encode(r))
    end
    local pending = r.state == 'pending' and r.until_ms > now
    if pending and r.digest == new.digest and r.author == new.author then return {2, is} end
    if pending then open = open + 1 else closed[#closed + 1] = {r.at_ms, field} end
  end
end
if new.state == 'pending' and open >= most then return {5, open} end

new.at_ms, new.until_ms = now, now + life
text = cjson.encode(new)
redis.call('HSET', requests_key, id, text)
if new.state == 'pending' then redis.call('HSET', requests_key, id .. ':change', change) end
redis.call('HSET', requesters_key, tenant, string.format('%.0f', now))
table.sort(closed, function(a, b) return a[1] < b[1] end)
for i = 1, #closed - kept do redis.call('HDEL', requests_key, closed[i][2], closed[i][2] .. ':change') end
return {1, text}

-- rate: enforces submit_rate: takes permits to submit jobs out of a tenant's bucket.
--
-- Guarantee: in any time t all callers together get at most rate * t + burst permits. The bucket
-- fills by Redis' clock; where that goes back it does not fill until it goes on.
--
-- KEYS[1] rate:<tenant>  string: permits that are left, a space, when that was (us)
-- ARGV[1] permits a second, above 0   ARGV[2] burst, permits, from 1   ARGV[3] most permits to take,
--   from 1
-- Returns {taken, left}: left, thousandths of a permit, is what stays in the bucket; when less was
--   taken than wanted it is below 1000
-- Redis 7.0. Cost: O(1).
local rate_key, rate, burst, most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- MGET passes over a key of another type. Without a valid past the bucket is full.
local left, at = string.match(redis.call('MGET', rate_key)[1] or '', '^(%d+%.%d+) (%d+)$')
left, at = tonumber(left) or burst, tonumber(at) or now
left = math.min(burst, left + math.max(now - at, 0) * rate / 1000000)
local taken = math.min(math.floor(left), most)
left = left - taken
-- Gone when it would be full again.
local full_in = string.format('%.0f', math.ceil((burst - left) / rate * 1000) + 1)
redis.call('SET', rate_key, string.format('%.6f %.0f', left, now), 'PX', full_in)
return {taken, math.floor(left * 1000)}

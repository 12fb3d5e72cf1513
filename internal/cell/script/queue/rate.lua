-- rate: enforces submit_rate: takes permits to submit jobs from a tenant's bucket.
--
-- Guarantee: in any time t all callers together get at most rate * t + burst permits. The bucket
-- fills by Redis' clock. If the clock goes back, the bucket does not fill until the clock has
-- caught up.
--
-- KEYS[1] rate:<tenant>  string: permits that are left, a space, when that was (us)
-- ARGV[1] permits a second, above 0   ARGV[2] burst, permits, from 1   ARGV[3] most permits to take,
--   from 1
-- Returns {taken, left}: left, in thousandths of a permit, is what stays in the bucket; it is below
--   1000 if fewer were taken than wanted
-- Redis 7.0. Cost: O(1).
local rate_key, rate, burst, most = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- MGET skips a key of another type. Without a valid past the bucket is full.
local left, at = string.match(redis.call('MGET', rate_key)[1] or '', '^(%d+%.%d+) (%d+)$')
left, at = tonumber(left) or burst, tonumber(at) or now
left = math.min(burst, left + math.max(now - at, 0) * rate / 1000000)
local taken = math.min(math.floor(left), most)
left = left - taken
-- The key expires when the bucket would be full again.
local full_in = string.format('%.0f', math.ceil((burst - left) / rate * 1000) + 1)
redis.call('SET', rate_key, string.format('%.6f %.0f', left, now), 'PX', full_in)
return {taken, math.floor(left * 1000)}

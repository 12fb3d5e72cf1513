-- summary: returns what operators see of services in a listing, for up to 256 with one hash tag.
--
-- Guarantee: it changes nothing, and its answer was true at one moment of Redis' clock. An instance
-- is late if its last heartbeat is older than the limit, or than twice the service's longest interval
-- if that is more.
--
-- KEYS[1] registry:service:<service>  hash   KEYS[2] registry:services:<service>:heartbeats  zset
-- and so on, two for each service
-- ARGV[1] limit, ms, of a service that has none of its own
-- Returns for each service {head, limit or '', every or '', late, instances}
-- Redis 7.0. Cost: O(services * log(instances)).
-- include lib/clock.lua
-- include lib/head.lua
local reply = {}
for i = 1, #KEYS / 2 do
  local record_key, heartbeats_key = KEYS[2 * i - 1], KEYS[2 * i]
  local h, own = head(record_key), redis.call('HMGET', record_key, 'limit', 'every')
  local timeout = math.max(tonumber(own[1]) or tonumber(ARGV[1]), 2 * (tonumber(h[4]) or 0))
  local late = redis.call('ZCOUNT', heartbeats_key, '-inf', string.format('(%.0f', now - timeout))
  reply[i] = {h, own[1] or '', own[2] or '', late, redis.call('ZCARD', heartbeats_key)}
end
return reply

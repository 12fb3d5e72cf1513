-- look: returns what a consumer compares regularly, for up to 256 services with one hash tag: their
-- heads, and which of their instances are late.
--
-- Guarantee: it changes nothing, and its answer was true at one moment of Redis' clock. An instance
-- is late if its last heartbeat is older than the caller's timeout, or than twice the service's
-- longest interval if that is more.
--
-- KEYS[1] registry:service:<service>  hash   KEYS[2] registry:services:<service>:heartbeats  zset
-- and so on, two for each service
-- ARGV[1] '1' to have the server's history, else '0'
-- then for each service: timeout in ms, and how many late ids to leave out, of those with the oldest heartbeats
-- Returns {history or '', at, {head, late_count, id...}...}. At most 1,000 ids a service and 2,000 a call, from the
--   oldest heartbeat on; the caller asks for the rest by leaving out those that it has.
-- Redis 7.0. Cost: O(services * log(instances) + late ids answered).
-- include lib/clock.lua
-- include lib/server.lua
-- include lib/head.lua
local history = ARGV[1] == '1' and server_history() or ''
local reply, room = {history, at}, 2000
for i = 1, #KEYS / 2 do
  local heartbeats_key = KEYS[2 * i]
  local h = head(KEYS[2 * i - 1])
  local timeout = math.max(tonumber(ARGV[2 * i]), 2 * (tonumber(h[4]) or 0))
  local edge = string.format('(%.0f', now - timeout)
  local count = redis.call('ZCOUNT', heartbeats_key, '-inf', edge)
  local one = {h, count}
  if count > 0 and room > 0 then
    -- By rank: unlike LIMIT with an offset, that does not walk over the ids left out.
    local from = tonumber(ARGV[2 * i + 1])
    local ids = redis.call('ZRANGE', heartbeats_key, from, math.min(from + math.min(room, 1000), count) - 1)
    for j = 1, #ids do one[2 + j] = ids[j] end
    room = room - #ids
  end
  reply[2 + i] = one
end
return reply

-- heard: reads which nodes gave a sign of life that no event tells of, oldest first, one page at a
-- time. It also says for how long such heartbeats may go on.
--
-- Guarantee: harmless when repeated. It reads nothing newer than the time that it returns, so a
-- caller that goes on from there misses nothing.
--
-- KEYS[1] version:nodes  hash: its field quiet_until is the time (ms) until which heartbeats may be
--   quiet
-- ARGV[1] since, ms, itself included   ARGV[2] page size
-- ARGV[3] for how long heartbeats may be quiet, ms; 0 ends that; '' says nothing of it
-- Returns {now, {node, ms, ...}}
-- Foreign keys: index:heartbeats zset, of this cell: node -> its last quiet heartbeat, ms. It is not
-- in KEYS because it may be missing while a hash slot migrates.
-- Redis 7.0. Cost: O(page).
local version_key, since, page, quiet = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local STAYS = 3600000 -- ms; an older release takes out a node without its entry
-- include lib/clock.lua
-- include lib/key.lua
local heartbeats_key = PREFIX .. ':index:heartbeats' .. TAG

local beats = redis.call('ZRANGE', heartbeats_key, since, at, 'BYSCORE', 'LIMIT', 0, page, 'WITHSCORES')
-- The writes are protected: without them heartbeats are announced, as when memory is short.
if quiet == '0' then
  redis.pcall('HDEL', version_key, 'quiet_until')
elseif quiet ~= '' then
  local till = tonumber(redis.call('HGET', version_key, 'quiet_until') or '') or 0
  -- Most calls need not write, because another replica did a moment ago. A later time than ours was
  -- written before the clock went back, and would outlast all replicas.
  if till < now + quiet * 2 / 3 or till > now + quiet then
    redis.pcall('HSET', version_key, 'quiet_until', string.format('%.0f', now + quiet))
    redis.pcall('ZREMRANGEBYSCORE', heartbeats_key, '-inf', now - STAYS)
  end
end
return {at, beats}

-- override: sets an operator's override of an instance, beside the provider's values, or takes it
-- back.
--
-- Guarantee: times are Redis' own. An instance that never existed gets no override. If the caller
-- names an override that it saw, another one stays as it is.
--
-- KEYS[1] registry:service:<service>         hash   KEYS[2] registry:changes:<service>         zset
-- KEYS[3] registry:overrides:<service>       hash   KEYS[4] registry:services:<service>:<id>   hash
-- ARGV[1] service   ARGV[2] stamp, random   ARGV[3] channel of changes   ARGV[4] id
-- ARGV[5] JSON without times, '' takes the override back   ARGV[6] ms until it ends by itself, 0 for never
-- ARGV[7] at_ms of the override that the caller saw, 0 for none, '' for any
-- Returns {1, revision} done, {4} there is no such instance, or no override to take back, {5} the
--   service has 1,000 overrides, all of existing instances, {6, at_ms} another override is there, or
--   none: 0. Otherwise the override whose instance has been gone for longest makes room.
-- Redis 7.0. Cost: O(fields), and O(overrides) where there are 1,000.
local record_key, changes_key, overrides_key, instance_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local service, stamp, change_channel, id, json, lasts = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6])
local seen = ARGV[7]
-- include lib/clock.lua
-- include lib/publish.lua
-- include lib/change.lua
-- include lib/touch.lua
local former = redis.call('HGET', overrides_key, id)
local ok, was = pcall(cjson.decode, former or '{}')
if not ok or type(was) ~= 'table' then was = {} end
local at, ends = tonumber(was.at_ms) or 0, tonumber(was.until_ms) or 0
-- One that has ended by itself is as none.
if seen ~= '' and tonumber(seen) ~= at and not (seen == '0' and ends > 0 and ends <= now) then return {6, at} end
if json == '' then
  if redis.call('HDEL', overrides_key, id) == 0 then return {4} end
else
  local there = redis.call('HEXISTS', instance_key, 'epoch') == 1
  if not there and not former then return {4} end
  if not former and redis.call('HLEN', overrides_key) >= 1000 then
    local gone, oldest, all = nil, math.huge, redis.call('HGETALL', overrides_key)
    for i = 1, #all, 2 do
      local at = tonumber(string.match(all[i + 1], '"gone_ms":(%d+)'))
      if at and at > 0 and at < oldest then gone, oldest = all[i], at end
    end
    if not gone then return {5} end
    redis.call('HDEL', overrides_key, gone)
  end
  local set = cjson.decode(json)
  set.at_ms = math.max(now, at + 1) -- it names this override
  if lasts > 0 then set.until_ms = now + lasts end
  if not there then set.gone_ms = was.gone_ms or now end
  redis.call('HSET', overrides_key, id, cjson.encode(set))
end
return {1, touch({id}, {instance_key}, 'override') or tonumber(redis.call('HGET', record_key, 'revision') or '0')}

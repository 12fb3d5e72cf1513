-- changes: returns what has changed in a service since a revision, oldest first.
--
-- Guarantee: it changes nothing. A page ends between two revisions, so that the caller can go on
-- from the last one. With more = 0 the caller has everything up to the head's revision.
--
-- KEYS[1] registry:service:<service>  hash   KEYS[2] registry:changes:<service>  zset
-- KEYS[3] registry:overrides:<service>  hash   KEYS[4] registry:services:<service>:heartbeats  zset
-- ARGV[1] revision, 0 or more   ARGV[2] birth that the caller knows   ARGV[3] what keys of instances begin with
-- ARGV[4] size of a page
-- Returns {1, head, more, {id, revision, fields, override}...}, fields empty for an id that is gone;
--   {2, head} if the revision is below the floor, above the head's, or of another birth: load
-- Redis 7.0. Cost: O(log(changes) + size of the page).
-- include lib/head.lua
-- include lib/here.lua
-- include lib/item.lua
local record_key, changes_key, overrides_key, heartbeats_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local since, birth, begin, size = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local h = head(record_key)
local floor = tonumber(redis.call('HGET', record_key, 'floor') or '0')
if h[3] ~= birth or since < floor or since > tonumber(h[1]) then return {2, h} end

local found = redis.call('ZRANGE', changes_key, string.format('(%.0f', since), '+inf', 'BYSCORE', 'LIMIT', 0, size + 1, 'WITHSCORES')
local n, more = #found / 2, 0
if n > size then
  more = 1
  local cut = found[2 * n]
  while n > 0 and found[2 * n] == cut do n = n - 1 end
  if n == 0 then -- one change of more instances than fit into a page
    found = redis.call('ZRANGE', changes_key, cut, cut, 'BYSCORE', 'WITHSCORES')
    n = #found / 2
  end
end
local reply = {1, h, more}
if n == 0 then return reply end
local ids, instance_keys = {}, {}
for i = 1, n do ids[i], instance_keys[i] = found[2 * i - 1], begin .. found[2 * i - 1] end
here(heartbeats_key, instance_keys)
local overrides = redis.call('HMGET', overrides_key, unpack(ids))
for i = 1, n do reply[3 + i] = item(ids[i], found[2 * i], redis.call('HGETALL', instance_keys[i]), overrides[i]) end
return reply

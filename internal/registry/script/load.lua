-- load: returns a page of all instances of a service.
--
-- Guarantee: it changes nothing. An instance that exists from the first page to the last is on one
-- of them, maybe on two. changes.lua returns what changed meanwhile, from the first page's revision.
--
-- KEYS[1] registry:service:<service>  hash   KEYS[2] registry:services:<service>:heartbeats  zset
-- KEYS[3] registry:overrides:<service>  hash
-- ARGV[1] cursor, '0' at first   ARGV[2] about how many to read   ARGV[3] what keys of instances begin with
-- Returns {head, cursor, {id, revision, fields, override}...}; cursor '0' is the end
-- Redis 7.0. Cost: O(instances of the page).
-- include lib/head.lua
-- include lib/here.lua
-- include lib/item.lua
local record_key, heartbeats_key, overrides_key = KEYS[1], KEYS[2], KEYS[3]
local cursor, size, begin = ARGV[1], ARGV[2], ARGV[3]
local scanned = redis.call('ZSCAN', heartbeats_key, cursor, 'COUNT', size)
local found = scanned[2]
local reply = {head(record_key), scanned[1]}
local n = #found / 2
if n == 0 then return reply end
local ids, instance_keys = {}, {}
for i = 1, n do ids[i], instance_keys[i] = found[2 * i - 1], begin .. found[2 * i - 1] end
here(heartbeats_key, instance_keys)
local overrides = redis.call('HMGET', overrides_key, unpack(ids))
for i = 1, n do
  local fields = redis.call('HGETALL', instance_keys[i])
  if #fields > 0 then
    local revision = '0'
    for j = 1, #fields, 2 do if fields[j] == 'revision' then revision = fields[j + 1] end end
    reply[#reply + 1] = item(ids[i], revision, fields, overrides[i])
  end
end
return reply

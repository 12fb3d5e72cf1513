-- deregister: removes instances of a service.
--
-- Guarantee: an instance of another epoch than the caller's stays. It works when Redis refuses
-- writes for lack of memory. Repeating it removes nothing else.
--
-- KEYS[1] registry:services                       set
-- KEYS[2] registry:services:<service>:heartbeats  zset    KEYS[3] registry:service:<service>    hash
-- KEYS[4] registry:changes:<service>              zset    KEYS[5] registry:overrides:<service>  hash
-- KEYS[6..] registry:services:<service>:<id>      hash, one an item
-- ARGV[1] service   ARGV[2] stamp, random   ARGV[3] channel of changes   ARGV[4] reason: deregistered, checks_failed or
--   removed_by_operator
-- ARGV[5..] for each item: id; epoch, '' for any
-- Returns for each item {1, revision} removed, {4} it is not there, or
--   {3, epoch, host, port, silent ms, interval ms, registered ms, replaced} another epoch holds it, as in holder
-- Redis 7.0. Cost: O(items * log(instances)); one command an item, and about ten that all share.
local services_key, heartbeats_key, record_key, changes_key, overrides_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local service, stamp, change_channel, reason = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/at.lua
-- include lib/publish.lua
-- include lib/change.lua
-- include lib/remove.lua
-- include lib/holder.lua
local reply, ids, keys = {}, {}, {}
for n = 1, #KEYS - 5 do
  local id, epoch, key = ARGV[3 + 2 * n], ARGV[4 + 2 * n], KEYS[5 + n]
  local held = redis.pcall('HMGET', key, 'epoch')
  if not held[1] then
    reply[n] = {4}
  elseif epoch ~= '' and held[1] ~= epoch then
    reply[n] = holder(key, redis.call('ZSCORE', heartbeats_key, id), epoch)
  else
    reply[n] = {1}
    ids[#ids + 1], keys[#keys + 1] = id, key
  end
end
if #ids > 0 then
  local revision = remove(ids, keys, reason, reason == 'removed_by_operator' and 'removed' or 'deregistered')
  for _, item in ipairs(reply) do
    if item[1] == 1 then item[2] = revision end
  end
end
return reply

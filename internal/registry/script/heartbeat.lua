-- heartbeat: proves that instances of a service live, and may bring their metrics.
--
-- Guarantee: nothing is written for an instance that is incomplete, or has another epoch. It works
-- when Redis refuses writes for lack of memory.
--
-- KEYS[1] registry:services:<service>:heartbeats  zset   KEYS[2..] registry:services:<service>:<id>  hash, one an item
-- ARGV[1] channel of metrics   ARGV[2] '1' also writes metrics as metadata_<type>_<field>
-- ARGV[3..] for each item: id, epoch, content, metrics (JSON or '')
-- Returns for each item 1 beaten, 2 beaten but the content differs: register it, 4 unknown: register it, or
--   {3, epoch, host, port, silent ms, interval ms, registered ms, replaced} another epoch holds it, as in holder
-- Redis 7.0. Cost: O(items * log(instances)); two commands an item, and three that all share.
local KEYS, ARGV = KEYS, ARGV -- a global is looked up by its name each time
local heartbeats_key, metrics_channel, flat = KEYS[1], ARGV[1], ARGV[2] == '1'
local call, try = redis.call, redis.pcall
-- include lib/at.lua

local items, ids = #KEYS - 1, {}
for n = 1, items do ids[n] = ARGV[4 * n - 1] end
local scores = call('ZMSCORE', heartbeats_key, unpack(ids))
local reply, beats = {}, {}
for n = 1, items do
  local item, key = 4 * n - 1, KEYS[1 + n]
  local held = try('HMGET', key, 'epoch', 'content')
  if not held[1] or not scores[n] then
    reply[n] = 4
  elseif held[1] ~= ARGV[item + 1] then
    -- include lib/holder.lua
    reply[n] = holder(key, scores[n], ARGV[item + 1])
  else
    reply[n] = held[2] == ARGV[item + 2] and 1 or 2
    beats[#beats + 1] = scores[n] == 'inf' and 'inf' or at
    beats[#beats + 1] = ids[n]
  end
end

if #beats > 0 then
  local added = try('ZADD', heartbeats_key, unpack(beats))
  if type(added) == 'table' then
    call('ZREM', heartbeats_key, '') -- Redis accepts what follows a write that needs no memory
    call('ZADD', heartbeats_key, unpack(beats))
  end
  for n = 1, items do
    local metrics = ARGV[4 * n + 2]
    if reply[n] ~= 1 and reply[n] ~= 2 then -- not beaten
    elseif metrics == '' then
      call('HSET', KEYS[1 + n], 'heartbeat', at)
    else
      -- include lib/publish.lua
      -- include lib/figures.lua
      local fields = {'heartbeat', at, 'lastMetadataUpdate', at}
      add_figures(fields, metrics)
      call('HSET', KEYS[1 + n], unpack(fields))
      publish_figures(ids[n], metrics)
    end
  end
end
return reply

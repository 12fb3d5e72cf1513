-- complete: ends attempts of one node: stores the outcome, frees the slot, tells
-- the replica that waits.
--
-- Guarantee: only the owner of an attempt, in the epoch that was given it, can
-- end it, and only once; a repeated or stale item changes nothing. The first write
-- frees memory, so that it works where Redis refuses other writes.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] finished  zset
-- KEYS[4] nodes:<node>    hash   KEYS[5] slots:<node>   hash
-- KEYS[6..] jobs:<job>    hash, one an item
-- ARGV[1] node   ARGV[2] epoch   ARGV[3] channel   ARGV[4] retention, ms
-- ARGV[5] largest result put on the reply stream, bytes
-- ARGV[6] key prefix   ARGV[7] tag part
-- then for each item: job, attempt, state, result (JSON or ''), failure (JSON or '')
-- Returns {used, outcome, ...}: 1 completed, 2 this attempt was ended before, 0 stale
-- Foreign keys (replies) come from records of this cell.
-- Redis 7.0. Cost: O(items).
local revisions_key, version_key, finished_key, profile_key, slots_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local node, epoch, channel, retention, inline = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local PREFIX, TAG = ARGV[6], ARGV[7]
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/finish.lua

local fields = {'sum'}
for i = 6, #KEYS do fields[i - 4] = ARGV[8 + 5 * (i - 6)] end
local owned = redis.call('HMGET', slots_key, unpack(fields))
used = tonumber(owned[1]) or 0
local reply, before, ended = {0}, used, {}
for i = 6, #KEYS do
  local job_key, at = KEYS[i], 8 + 5 * (i - 6)
  local job, attempt = ARGV[at], ARGV[at + 1]
  local record = redis.call('HMGET', job_key, 'reply_to', 'state', 'attempt', 'epoch', 'retention_ms')
  local value = owned[i - 4]
  local owned_attempt, owned_epoch, slots
  if value then owned_attempt, owned_epoch, slots = string.match(value, '^(%d+):([^:]*):(%d+)') end
  if owned_attempt == attempt and owned_epoch == epoch and not ended[job] then
    ended[job] = true
    redis.call('HDEL', slots_key, job)
    used = used - tonumber(slots)
    -- A record that an operator deleted is not made again: only its end would be in it.
    if record[2] then finish(job, job_key, node, attempt, record[1], record[5], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]) end
    reply[#reply + 1] = 1
  elseif record[3] == attempt and record[4] == epoch and record[2] ~= 'running' and record[2] ~= 'cancelling' then
    reply[#reply + 1] = 2
  else
    reply[#reply + 1] = 0
  end
end
if used < before then
  forget()
  redis.call('HSET', slots_key, 'sum', used)
  local profile = redis.call('HMGET', profile_key, 'status', 'max_concurrency')
  local max = tonumber(profile[2]) or 0
  if used < max and before >= max then
    announce('e', node, epoch, profile[1], max, used, '')
  end
end
reply[1] = used
return reply

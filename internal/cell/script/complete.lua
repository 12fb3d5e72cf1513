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
-- Redis 7.0. Cost: O(items); four commands a job, seven that all share.
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
used = owned[1] and string.find(owned[1], '^%d+$') and tonumber(owned[1]) or 0 -- an edit may have left nan

local before, freed, ended, slots = used, {}, {}, {} -- slots: of the items that end a job
local parsed = {} -- values of owned jobs: nearly all of a node are the same
for i = 6, #KEYS do
  local at_arg, value = 8 + 5 * (i - 6), owned[i - 4]
  local job = ARGV[at_arg]
  if value and not ended[job] then
    local part = parsed[value]
    if not part then
      local attempt, owner, count = string.match(value, '^(%d+):([^:]*):(%d+)')
      part = {attempt, owner == epoch and tonumber(count)}
      parsed[value] = part
    end
    if part[2] and part[1] == ARGV[at_arg + 1] then
      ended[job], freed[#freed + 1], slots[i] = true, job, part[2]
    end
  end
end
if #freed > 0 then redis.call('HDEL', slots_key, unpack(freed)) end

local reply = {0}
for i = 6, #KEYS do
  local job_key, at_arg, outcome = KEYS[i], 8 + 5 * (i - 6), 0
  local job, attempt = ARGV[at_arg], ARGV[at_arg + 1]
  if slots[i] then
    used, outcome = used - slots[i], 1
    local record = redis.call('HMGET', job_key, 'state', 'reply_to', 'job')
    -- A record that an operator deleted is not made again: only its end would be in it.
    if record[1] then
      finish(job, job_key, node, attempt, record[2], record[3], ARGV[at_arg + 2], ARGV[at_arg + 3], ARGV[at_arg + 4])
    end
  else
    local record = redis.call('HMGET', job_key, 'state', 'run')
    local last, owner = string.match(record[2] or '', '^(%d+) %S+ (%S+) ')
    if last == attempt and owner == epoch and record[1] ~= 'running' and record[1] ~= 'cancelling' then outcome = 2 end
  end
  reply[i - 4] = outcome
end
if #freed > 0 then
  redis.call('HSET', slots_key, 'sum', used)
  index_finished()
  forget()
  if used < before then
    local profile = redis.call('HMGET', profile_key, 'status', 'max_concurrency')
    local max = tonumber(profile[2]) or 0
    if used < max and before >= max then
      announce('e', node, epoch, profile[1], max, used, '')
    end
  end
end
reply[1] = used
return reply

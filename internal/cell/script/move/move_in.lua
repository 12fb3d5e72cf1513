-- move_in: puts jobs that come from another cell into the queues here, each as its record was
-- there: with its attempts, failures and deadline, under an id of this cell. The tags of its tenant
-- here decide its place among jobs of its priority.
--
-- Guarantee: idempotent by job id and hop, the number of the move in the job's life. A job that
-- came with this hop, or a later one, is left as it is, for as long as its record is kept. The
-- record is kept until its move is settled (see move_ack.lua), even if the job ends before, and a
-- while longer. A call that read the other cell longer ago than that does nothing.
--
-- KEYS[1] due  zset   KEYS[2] waiting  hash   KEYS[3] version:waiting  string   KEYS[4] moved  zset
-- KEYS[5..] jobs:<job>  hash, one an item
-- ARGV[1] until when to act, ms
-- ARGV[2..] for each item: job, id that its client knows, hop, weight of the tenant, its limits in
--   this cell (name limit ...), number of texts, then the texts: names and values of fields
-- Returns {now, what, ...}: 1 it waits now, 2 it was there already, 0 too late, 3 its record has
--   another form
-- Foreign keys (queues) are of this cell.
-- Redis 7.0. Cost: O(items).
local due_key, waiting_key, waiting_version_key, moved_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local till = tonumber(ARGV[1])
-- ms, 30 days: how long a record is kept while its move is not settled, even if the job ends
-- before. Without the record, repeating the move would create the job a second time.
local HOLD = 2592000000
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/record.lua
-- include lib/queue.lua

local limits_key = PREFIX .. ':gates' .. TAG
local items, keys, from = {}, {due_key, moved_key, waiting_version_key}, 2
for i = 5, #KEYS do
  local count = tonumber(ARGV[from + 5])
  local one = {job = ARGV[from], known = ARGV[from + 1], hop = tonumber(ARGV[from + 2]), weight = tonumber(ARGV[from + 3]),
    limits = ARGV[from + 4], fields = {unpack(ARGV, from + 6, from + 5 + count)}}
  for f = 1, count, 2 do
    if one.fields[f] == 'job' then one.static, one.at = one.fields[f + 1], f + 1 end
    if one.fields[f] == 'gates' then one.limits = one.fields[f + 1] end
    if one.fields[f] == 'node_by' then one.node_by = one.fields[f + 1] end
  end
  queue_keys(one.static, keys)
  items[i] = one
  from = from + 6 + count
end
here(waiting_key, keys)
local reply = {now}
for i = 5, #KEYS do
  local job_key, one = KEYS[i], items[i]
  local record = redis.pcall('HMGET', job_key, 'state', 'hop')
  local tenant, slots, submitted_at, retention, class, priority, attempts, deadline, definition = read_job(one.static)
  if record.err or not tenant then
    reply[i - 3] = 3
  elseif record[1] and (record[1] ~= 'moved' or tonumber(record[2] or '0') >= one.hop) then
    reply[i - 3] = 2
  elseif now > till then
    reply[i - 3] = 0
  else
    local hold = string.format('%.0f', math.max(HOLD, tonumber(retention)))
    one.fields[one.at] = write_job(tenant, slots, submitted_at, hold, class, priority, attempts, deadline, definition)
    redis.call('HSET', job_key, 'state', 'waiting', 'known', one.known, 'hop', one.hop, 'keep', retention, unpack(one.fields))
    if record[1] then -- it was here before, and left
      redis.call('HDEL', job_key, 'move')
      redis.call('PERSIST', job_key)
      sure('ZREM', moved_key, one.job)
    end
    local look = first_look(deadline, one.node_by)
    if look then sure('ZADD', due_key, look, one.job) end
    join_queue(one.job, class, definition, fair_score(class, tenant, slots, priority, one.weight))
    -- Protected: if the job does not count, limits.lua corrects that.
    for name, limit in string.gmatch(one.limits, '(%S+) (%d+)') do redis.pcall('HSET', limits_key, name, limit) end
    for name in string.gmatch(one.limits or '', ' (w:%S+)') do redis.pcall('SADD', key('gate', name), one.job) end
    reply[i - 3] = 1
  end
end
return reply

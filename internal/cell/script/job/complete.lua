-- complete: ends attempts of one node: stores the outcome, frees the slot, gives it to the
-- next job that waits and may have it, tells the replica that waits.
--
-- Guarantee: only the owner of an attempt, in the epoch that was given it, can
-- end it, and only once; a repeated or stale item changes nothing. The first write
-- frees memory, so that it works where Redis refuses other writes.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] finished  zset
-- KEYS[4] nodes:<node>    hash   KEYS[5] slots:<node>   hash   KEYS[6] dispatch:<node> stream
-- KEYS[7..] jobs:<job>    hash, one an item
-- ARGV[1] node   ARGV[2] epoch   ARGV[3] channel
-- ARGV[4] '1': jobs that begin are told in the answer, which the caller gets sooner than an entry of its dispatch stream, and
--   for less. An answer that is lost is no loss: like a missed entry, the next heartbeat mends it.
-- then for each item: job, attempt, state, result (JSON or ''), failure (JSON or ''), again: '' ends the job,
--   'h' hands it back uncounted, else the pause before the next attempt, ms
-- Returns {used, outcome, ...}: 1 completed, 2 this attempt was ended before, 0 stale; behind the outcomes, for each
--   job that began and is told so, the fields j and s of a dispatch entry
-- Foreign keys (replies, due, queues, jobs that begin, serves) are of this cell. They are none of
-- KEYS because most are often not there: while a hash slot migrates Redis would refuse every call.
-- Redis 7.0. Cost: O(items + jobs that begin); three commands a job, one for each replica, eight that all share.
local revisions_key, version_key, finished_key, profile_key, slots_key, dispatch_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local node, epoch, channel, handed = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1' and {} or nil
-- include lib/clock.lua
-- include lib/key.lua
local due_key, waiting_key, waiting_version_key = PREFIX .. ':due' .. TAG, PREFIX .. ':waiting' .. TAG, PREFIX .. ':version:waiting' .. TAG
-- include lib/announce.lua
-- include lib/finish.lua

local fields = {'sum'}
for i = 7, #KEYS do fields[i - 5] = ARGV[5 + 6 * (i - 7)] end
local owned = redis.call('HMGET', slots_key, unpack(fields))
local counted = owned[1] and string.find(owned[1], '^%d+$') -- an edit may have left nan
used = counted and tonumber(owned[1]) or 0

local before, begun = used, 0
local freed, ended, slots, returns, through = {}, {}, {}, false, false -- slots: of the items that end an attempt; through: a gate
local parsed = {} -- values of owned jobs: nearly all of a node are the same
for i = 7, #KEYS do
  local at_arg, value = 5 + 6 * (i - 7), owned[i - 5]
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
      used = used - part[2]
      returns = returns or ARGV[at_arg + 5] ~= ''
    end
  end
end
local records = {} -- of the items that end an attempt
for i = 7, #KEYS do
  if slots[i] then
    local record = redis.pcall('HMGET', KEYS[i], 'state', 'reply_to', 'job', 'fails', 'why', 'gates')
    -- What an operator has made something else of is as one that is gone; all other errors are for the caller.
    if record.err and not string.find(record.err, 'WRONGTYPE', 1, true) then return record end
    records[i] = record
    through = through or records[i][6]
  end
end
-- Protected: while a hash slot migrates they may be on another server. Then nobody gets the slots.
local serves = redis.pcall('MGET', key('serves', node), PREFIX .. ':version:serves' .. TAG)

-- Of the queues that the node serves those in which somebody waits; none until the next
-- heartbeat has counted anew what an edit left in the sum.
local version, classes = string.match(serves[1] or '', '^(%d+) (.*)$')
local served, open = {}, {}
-- Whether anybody waits at all is asked before where that is cheaper than to ask for each queue.
if #freed > 0 and counted and version and version == serves[2] and
  classes ~= '' and (through or not string.find(classes, ' ', 1, true) or redis.pcall('EXISTS', waiting_key) == 1) then
  for class in string.gmatch(classes, '%x+') do served[#served + 1] = class end
  local waits = redis.pcall('HMGET', waiting_key, unpack(served))
  for i, class in ipairs(served) do
    if waits.err or waits[i] then open[#open + 1] = class end
  end
end

-- Functions are made where they are needed: most calls find nobody waiting.
if #freed > 0 and #open == 0 and not returns and not through then
  redis.call('HDEL', slots_key, unpack(freed))
elseif #freed > 0 then
  -- include lib/job.lua
  -- include lib/here.lua
  -- include lib/queue.lua
  -- include lib/limit.lua
  -- include lib/retry.lua
  -- include lib/take.lua
  if returns or through then
    local lines = {due_key, waiting_key, waiting_version_key}
    for i, record in pairs(records) do
      if ARGV[10 + 6 * (i - 7)] ~= '' then line_keys(record[3], lines) end
      if record[6] then gate_keys(record[6], lines) end
    end
    here(slots_key, lines)
  end
  redis.call('HDEL', slots_key, unpack(freed))
  for i = 7, #KEYS do
    local record, at_arg = records[i], 5 + 6 * (i - 7)
    local pause = ARGV[at_arg + 5]
    local goes_on = record and record[1] == 'running' and pause ~= ''
    if record and record[6] then
      if goes_on then gated[ARGV[at_arg]] = record[6] else quit(ARGV[at_arg], record[6], record[3]) end
    end
    if goes_on then
      again(ARGV[at_arg], KEYS[i], node, ARGV[at_arg + 1], record[2], record[3], record[4], pause ~= 'h', ARGV[at_arg + 4], tonumber(pause) or 0)
      records[i] = nil
    end
  end
  for _, class in ipairs(served) do
    if unparked[class] then open[#open + 1] = class end
  end
  if #open > 0 then
    local profile = redis.call('HMGET', profile_key, 'epoch', 'status', 'max_concurrency')
    if profile[1] == epoch and profile[2] == 'online' and string.find(profile[3] or '', '^%d%d?%d?%d?%d?$') then
      local max = tonumber(profile[3])
      used, begun = take(node, epoch, max, used, slots_key, dispatch_key, open, handed)
    end
  end
end

local reply = {used}
for i = 7, #KEYS do
  local job_key, at_arg, outcome = KEYS[i], 5 + 6 * (i - 7), 0
  local job, attempt = ARGV[at_arg], ARGV[at_arg + 1]
  if slots[i] then
    outcome = 1
    local record, state = records[i], ARGV[at_arg + 2]
    -- A record that an operator deleted is not made again: only its end would be in it.
    if record and record[1] then
      if record[1] == 'cancelling' and ARGV[at_arg + 5] ~= '' then state = 'cancelled' end
      if state == 'cancelled' then
        -- Told to stop, though nobody asked as far as is known: a failover has lost who did. A deadline that has passed did.
        local deadline = record[1] == 'running' and tonumber(string.match(record[3] or '', '^%S+ %d+ %d+ %d+ %S+ %d+ %d+ (%d+) ') or '') or 0
        if record[5] == 'expired' or deadline > 0 and deadline <= now then state = 'expired' end
      end
      local failure = ARGV[at_arg + 4]
      if state == 'cancelled' then failure = '' end
      finish(job, job_key, node, attempt, record[2], record[3], state, ARGV[at_arg + 3], failure)
    end
  else
    local record = redis.pcall('HMGET', job_key, 'state', 'run') -- protected: the others are to be told
    local last, owner = string.match(record[2] or '', '^(%d+) %S+ (%S+) ')
    if last == attempt and owner == epoch and record[1] ~= 'running' and record[1] ~= 'cancelling' then outcome = 2 end
  end
  reply[i - 5] = outcome
end
if #freed > 0 then
  if begun == 0 then redis.call('HSET', slots_key, 'sum', used) end -- who begins a job says the sum with it
  index_finished()
  forget()
  if used ~= before then
    local profile = redis.call('HMGET', profile_key, 'status', 'max_concurrency')
    local max = tonumber(profile[2]) or 0
    if (used < max) ~= (before < max) then
      announce(used < max and 'e' or 'f', node, epoch, profile[1], max, used, '')
    end
  end
end
for i = 1, handed and #handed or 0 do reply[#reply + 1] = handed[i] end
return reply

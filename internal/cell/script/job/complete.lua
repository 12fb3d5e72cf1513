-- complete: ends attempts of one node. It stores the outcome, frees the slot, gives the slot to the
-- next waiting job that may have it, and informs the replica that waits.
--
-- Guarantee: only the owner of an attempt ends it, in the epoch that got it, and only once. A
-- repeated or stale item changes nothing. The first write frees memory, so that it works even if
-- Redis refuses other writes.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] finished  zset
-- KEYS[4] nodes:<node>    hash   KEYS[5] slots:<node>   hash   KEYS[6] dispatch:<node> stream; with ARGV[4]
--   '1' it is not used, and may be another key
-- KEYS[7..] jobs:<job>    hash, one an item
-- ARGV[1] node   ARGV[2] epoch   ARGV[3] channel
-- ARGV[4] '1': the answer brings the jobs that begin, sooner than an entry of the dispatch stream
--   and for less. An answer that is lost is no loss: like a missed entry, the next heartbeat mends
--   it.
-- ARGV[5..] for each item: job, attempt, state, result (JSON or ''), failure (JSON or ''), what is
--   next: '' ends the job, 'h' hands it back uncounted, else the pause before the next attempt, ms
-- Returns {used, outcome, ...}: 1 completed, 2 this attempt was ended before, 0 stale; behind the
--   outcomes the fields j and s of a dispatch entry for each job that began
-- Foreign keys (replies, due, queues, jobs that begin, serves) are of this cell. They are not in
-- KEYS because most of them often do not exist: while a hash slot migrates Redis would refuse every
-- call.
-- Redis 7.0. Cost: O(items + jobs that begin). Three commands for each job, one for each replica,
-- and seven for the call if no job waits; two more if jobs wait that the node does not serve.
-- Nearly all calls are plain: they end first attempts for good, and no job waits that the node
-- serves. lib/complete_plain.lua handles these, with the same effect as the code after it.
local KEYS, ARGV, call, try = KEYS, ARGV, redis.call, redis.pcall -- a global is looked up by its name each time
local revisions_key, version_key, finished_key, profile_key, slots_key, dispatch_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local node, epoch, channel, handed = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1' and {} or nil
local items = #KEYS - 6 -- item n has the record KEYS[6 + n] and six arguments from ARGV[6 * n - 1]
-- include lib/clock.lua
-- include lib/inline.lua
-- include lib/owned_ends.lua
local prefix, tag = string.match(revisions_key, '^([^:]+):index:revision(.*)$')
local waiting_key = prefix .. ':waiting' .. tag
-- include lib/served.lua
if plain and #open == 0 and tonumber(waiting) then
  -- include lib/complete_plain.lua
  return reply
end
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/record.lua
local due_key, waiting_version_key = PREFIX .. ':due' .. TAG, PREFIX .. ':version:waiting' .. TAG
-- include lib/end_job.lua
-- include lib/attempts.lua
for n, record in pairs(records) do keyed[jobs[n]] = record[5] end

local begun = 0
-- Functions are made only if they are needed: most calls find no job for the node.
if #freed > 0 and #open == 0 and not retries and not with_limits then
  redis.call('HDEL', slots_key, unpack(freed))
elseif #freed > 0 then
  -- include lib/here.lua
  -- include lib/queue.lua
  -- include lib/limit.lua
  -- include lib/retry.lua
  -- include lib/fill_node.lua
  -- include lib/next_attempts.lua
  for _, class in ipairs(served) do
    if released[class] then open[#open + 1] = class end
  end
  if #open > 0 then
    local profile = redis.call('HMGET', profile_key, 'epoch', 'status', 'max_concurrency')
    if profile[1] == epoch and profile[2] == 'online' and string.find(profile[3] or '', '^%d%d?%d?%d?%d?$') then
      local left = 131072 -- bytes of specs in an answer; the agent reads further ones itself
      local function give(head, spec)
        if handed then
          if #spec > left then spec = '' end
          left = left - #spec
          handed[#handed + 1], handed[#handed + 2] = head, spec
        else
          -- Protected: the stream only delivers. The next heartbeat names what is missing.
          redis.pcall('XADD', dispatch_key, '*', 'j', head, 's', spec)
        end
      end
      used, begun = fill_node(node, epoch, tonumber(profile[3]), used, slots_key, open, give)
    end
  end
end

local reply = {used}
for n = 1, items do
  local job_key, item, outcome = KEYS[6 + n], 6 * n - 1, 0
  local job, attempt = ARGV[item], ARGV[item + 1]
  local record = records[n] -- false if the job goes to another attempt
  if record ~= nil then
    outcome = 1
    local state, failure = ARGV[item + 2], ARGV[item + 4]
    -- A deleted record is not made again: it would hold nothing but the end.
    if record and record[1] then
      if record[1] == 'cancelling' and ARGV[item + 5] ~= '' then state = 'cancelled' end
      if state == 'cancelled' then
        -- The job was stopped, but the record has no request: a failover lost it, or the deadline
        -- has passed.
        local _, _, _, _, _, _, _, deadline = read_job(record[3])
        deadline = record[1] == 'running' and tonumber(deadline) or 0
        if call('HGET', job_key, 'why') == 'expired' or deadline > 0 and deadline <= now then state = 'expired' end
      end
      if state == 'cancelled' then failure = '' end
      if state ~= 'succeeded' then note_attempt(job_key, node, attempt, state, failure) end
      end_job(job, job_key, node, attempt, record[2], record[3], state, ARGV[item + 3], failure)
    end
  else
    local record = redis.pcall('HMGET', job_key, 'state', 'run') -- protected: the other items go on
    local last, owner = string.match(record[2] or '', '^(%d+) %S+ (%S+) ')
    if last == attempt and owner == epoch and record[1] ~= 'running' and record[1] ~= 'cancelling' then outcome = 2 end
  end
  reply[n + 1] = outcome
end
if #freed > 0 then
  if begun == 0 then redis.call('HSET', slots_key, 'sum', used) end -- a job that begins writes the sum, too
  index_finished()
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

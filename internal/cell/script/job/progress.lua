-- progress: stores the latest progress of jobs of one node, and passes it on to the replicas that
-- wait.
--
-- Guarantee: only the owner of an attempt reports, in the epoch that got it, while the attempt
-- runs. A stale or repeated item, or one older than what is stored, changes nothing. Results have
-- precedence: a long reply stream gets no progress, but the record has the latest.
--
-- KEYS[1] slots:<node>  hash   KEYS[2..] jobs:<job>  hash, one an item
-- ARGV[1] epoch
-- ARGV[2..] for each item: job, attempt, number, value (JSON)
-- Returns one an item: 1 taken in, 2 taken in and the job is being cancelled, 0 stale
-- Foreign keys (replies) come from records of this cell. While a hash slot migrates they may be on
-- another server; the entry is then left out.
-- Redis 7.0. Cost: O(items). Three commands for each item, two for each replica, and one for the
-- call.
local slots_key, epoch = KEYS[1], ARGV[1]
local BACKLOG = 8192 -- a longer reply stream gets no progress; its reader trims it each second
-- include lib/at.lua
-- include lib/key.lua

local jobs = {}
for i = 2, #KEYS do jobs[i - 1] = ARGV[2 + 4 * (i - 2)] end
local owned = redis.call('HMGET', slots_key, unpack(jobs))
local full = {} -- by replica

-- pass_on: sends progress to the replica that waits for the job, if there is one.
local function pass_on(replica, head, value)
  if not replica or replica == '' then return end
  local stream = key('replies', replica)
  if full[replica] == nil then
    local length = redis.pcall('XLEN', stream)
    full[replica] = type(length) ~= 'number' or length >= BACKLOG
  end
  if full[replica] then return end
  -- Protected: this is only a hint.
  redis.pcall('XADD', stream, 'NOMKSTREAM', '*', 'p', head, 'v', value)
end

local reply = {}
for i = 2, #KEYS do
  local job_key, item = KEYS[i], 2 + 4 * (i - 2)
  local job, attempt, number, value = unpack(ARGV, item, item + 3)
  local held, owner, mark = string.match(owned[i - 1] or '', '^(%d+):([^:]*):%d+(:?c?)$')
  reply[i - 1] = 0
  if held == attempt and owner == epoch then
    -- Protected: a key of another type is no record. A record that is gone is not made again.
    local record = redis.pcall('HMGET', job_key, 'state', 'reply_to', 'progress')
    reply[i - 1] = mark == ':c' and 2 or 1
    if record[1] == 'running' or record[1] == 'cancelling' then
      local last, known = string.match(record[3] or '', '^(%d+) (%d+) ')
      if not last or tonumber(attempt) > tonumber(last) or last == attempt and tonumber(number) > tonumber(known) then
        local head = attempt .. ' ' .. number .. ' ' .. at
        redis.call('HSET', job_key, 'progress', head .. ' ' .. value)
        pass_on(record[2], job .. ' ' .. head, value)
      end
    end
  end
end
return reply

-- progress: takes in what the handlers of one node told of their jobs, the latest of each,
-- and passes it on to the replicas that wait.
--
-- Guarantee: only the owner of an attempt, in the epoch that was given it, while it runs, is
-- heard; a stale or repeated item, or one that is older than what is known, changes nothing.
-- Results go first: nothing is added to a reply stream that is long, and the record has the
-- latest for whoever asks.
--
-- KEYS[1] slots:<node>  hash   KEYS[2..] jobs:<job>  hash, one an item
-- ARGV[1] epoch
-- then for each item: job, attempt, number, value (JSON)
-- Returns one an item: 1 taken in, 2 taken in and somebody asked to cancel the job, 0 stale
-- Foreign keys (replies) come from records of this cell; while a hash slot migrates they may
-- be on another server, and the entry is left out.
-- Redis 7.0. Cost: O(items); three commands an item and two for each replica, one that all share.
local slots_key = KEYS[1]
local epoch = ARGV[1]
local BACKLOG = 8192 -- entries of a reply stream from which on it gets no progress: its reader drops each second what it has read
-- include lib/at.lua
-- include lib/key.lua

local fields = {}
for i = 2, #KEYS do fields[i - 1] = ARGV[2 + 4 * (i - 2)] end
local owned = redis.call('HMGET', slots_key, unpack(fields))
local full = {} -- by replica

-- pass_on: tells the replica that waits for the job, if there is one.
local function pass_on(replica, head, value)
  if not replica or replica == '' then return end
  local stream = key('replies', replica)
  if full[replica] == nil then
    local length = redis.pcall('XLEN', stream)
    full[replica] = type(length) ~= 'number' or length >= BACKLOG
  end
  if full[replica] then return end
  -- Protected: a hint.
  redis.pcall('XADD', stream, 'NOMKSTREAM', '*', 'p', head, 'v', value)
end

local reply = {}
for i = 2, #KEYS do
  local job_key, at_arg = KEYS[i], 2 + 4 * (i - 2)
  local job, attempt, number, value = ARGV[at_arg], ARGV[at_arg + 1], ARGV[at_arg + 2], ARGV[at_arg + 3]
  local held, owner, mark = string.match(owned[i - 1] or '', '^(%d+):([^:]*):%d+(:?c?)$')
  reply[i - 1] = 0
  if held == attempt and owner == epoch then
    -- Protected: what an operator made something else of is no record, and a record that is
    -- gone is not made again.
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

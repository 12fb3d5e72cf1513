-- limits: checks whether the jobs that count towards limits still should, and returns limited jobs
-- to their queues if there is room.
--
-- Guarantee: no job stays limited beside an open limit for longer than the time between two calls
-- that reach the limit. A wrong count, which a migrating hash slot can leave, is corrected.
-- Repeating a call changes nothing.
--
-- KEYS[1] version:nodes  hash   KEYS[2] waiting  hash   KEYS[3] version:waiting  string
-- ARGV[1] most limits: of those with limited jobs the ones that were looked at longest ago, and as
--   many others drawn at random
-- Returns {class, definition, ...}: the classes of the jobs that wait now
-- Foreign keys (limits, jobs, queues, replies) are of this cell.
-- Redis 7.0. Cost: O(limits + jobs looked at + 128 jobs that return). It looks at 512 jobs, and
-- then finishes the limit that it is at.
local version_key, waiting_key, waiting_version_key = KEYS[1], KEYS[2], KEYS[3]
local most = tonumber(ARGV[1])
local HOLDERS, LOOK = 64, 512 -- how many jobs of one limit are looked at
local left = 512 -- how many jobs of all limits are looked at
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/record.lua
-- include lib/queue.lua
-- include lib/limit.lua

local function listed(answer) return type(answer) == 'table' and not answer.err and answer or {} end
local names, known = {}, {}
local function add(found)
  for _, name in ipairs(listed(found)) do
    if not known[name] then known[name], names[#names + 1] = true, name end
  end
end
-- No limit has this name: this write needs no memory, as in cancel.lua. Protected, like the calls
-- that follow.
redis.pcall('ZREM', full_limits_key, '-')
add(sure('ZRANGE', full_limits_key, 0, most - 1))
add(sure('HRANDFIELD', limits_key, most))

for _, name in ipairs(names) do
  if left <= 0 or returned >= BACK then break end -- the next call begins with the others
  local counting, limited_key = key('gate', name), key('parked', name)
  local waits = string.sub(name, 1, 2) == 'w:'
  local gone, here_now = {}, redis.pcall('EXISTS', version_key, counting, limited_key)
  if type(here_now) == 'number' then
    local holders = listed(sure('SRANDMEMBER', counting, HOLDERS))
    for _, job in ipairs(holders) do
      local state = redis.pcall('HGET', key('jobs', job), 'state')
      local runs = state == 'running' or state == 'cancelling'
      local stands = state == 'waiting' or state == 'retry_wait' or state == 'scheduled'
      if type(state) ~= 'table' and not (waits and stands or not waits and runs) then gone[#gone + 1] = job end
    end
    if #gone > 0 then redis.call('SREM', counting, unpack(gone)) end
    sure('ZCARD', limited_key) -- removes a key of another type
    left = left - #holders - release_jobs(name, LOOK)
    local there = redis.pcall('EXISTS', limited_key)
    if there == 0 then
      redis.pcall('ZREM', full_limits_key, name)
      if redis.pcall('EXISTS', counting) == 0 then redis.pcall('HDEL', limits_key, name) end
    elseif there == 1 then
      sure('ZADD', full_limits_key, at, name)
    end
  end
end

local reply = {}
for class, definition in pairs(released) do
  reply[#reply + 1], reply[#reply + 2] = class, definition
end
return reply

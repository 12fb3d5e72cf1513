-- due: does what is due: jobs for later, and those whose pause is over, wait for a slot; those past their
-- deadline expire, and where they run their node is asked to stop them, with a grace after
-- which their slot is taken back.
--
-- Guarantee: a job is moved once; the same call again finds nothing to do.
--
-- KEYS[1] due  zset   KEYS[2] finished  zset   KEYS[3] waiting  hash   KEYS[4] version:waiting  string
-- ARGV[1] most jobs
-- Also takes places of records that are gone out of the index of finished jobs.
-- Returns {jobs that expired, '1' if there is more, class, definition, ...}: classes whose jobs wait now
-- Foreign keys (jobs, queues, slots, dispatch, replies) come from records of this cell.
-- Redis 7.0. Cost: O(jobs due).
local due_key, finished_key, waiting_key, waiting_version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local most = tonumber(ARGV[1])
local GRACE = 30000 -- ms that a node has to stop a job that passed its deadline, before its slot is taken back
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/finish.lua
-- include lib/job.lua
-- include lib/queue.lua
-- include lib/places.lua
-- include lib/limit.lua

local jobs = sure('ZRANGEBYSCORE', due_key, '-inf', at, 'LIMIT', 0, most)
local expired, known, reply = 0, {}, {0, #jobs == most and '1' or '0'}
local job_keys, found, keys = {}, {}, {}
for i, job in ipairs(jobs) do job_keys[i] = key('jobs', job) end
here(due_key, job_keys)
for i, job_key in ipairs(job_keys) do
  -- Protected: a key that an operator made something else of is no job, and holds up no other.
  local record = redis.pcall('HMGET', job_key, 'state', 'job', 'run', 'reply_to', 'error', 'why', 'gates')
  local one = {state = record[1], static = record[2], reply_to = record[4], failure = record[5] or '', why = record[6]}
  local tenant, slots, class, priority, _, deadline, definition = job_parts(record[2])
  one.tenant, one.slots, one.class, one.priority, one.deadline, one.definition = tenant, slots, class, priority, deadline, definition
  one.attempt, one.node = string.match(record[3] or '', '^(%d+) (%S+) ')
  one.late = one.tenant and one.deadline > 0 and one.deadline <= now
  found[i] = one
  line_keys(record[2], keys)
  gated[jobs[i]] = record[7] or nil
  if record[7] then gate_keys(record[7], keys) end
  if one.node then keys[#keys + 1] = key('slots', one.node) end
end
here(due_key, keys)
if #jobs > 0 then redis.call('ZREM', due_key, '-') end -- which nobody has: see cancel.lua

-- Those that come to a queue first, because a queue that has become empty could, while a
-- hash slot migrates, not be written to any more.
for i, job in ipairs(jobs) do
  local one = found[i]
  if (one.state == 'retry_wait' or one.state == 'scheduled') and one.tenant and not one.late then
    redis.call('HSET', job_keys[i], 'state', 'waiting')
    -- Of a job for later the weight of its tenant is not known any more.
    local score = one.state == 'scheduled' and fair_score(one.class, one.tenant, one.slots, one.priority, 1) or front_score(one.class, one.priority)
    stand_in_line(job, one.class, one.definition, score)
    if not known[one.class] then
      known[one.class], reply[#reply + 1], reply[#reply + 2] = true, one.class, one.definition
    end
    one.state = 'waiting'
  end
end
for i, job in ipairs(jobs) do
  local one, job_key = found[i], job_keys[i]
  local state, node, attempt, late = one.state, one.node, one.attempt, one.late
  local slots_key, again_at = node and key('slots', node), nil -- again_at: when the job is to be looked at again
  local function expire(where) finish(job, job_key, where, attempt or 0, one.reply_to, one.static, 'expired', '', one.failure) end

  if (state == 'retry_wait' or state == 'scheduled') and late then
    expire(node or '-')
    expired = expired + 1
  elseif state == 'waiting' and late then
    leave_line(one.class, job)
    expire(node or '-')
    expired = expired + 1
  elseif state == 'waiting' and one.tenant and one.deadline > 0 then
    again_at = one.deadline
  elseif (state == 'running' or state == 'cancelling') and late and node and one.why ~= 'expired' then
    local value = redis.pcall('HGET', slots_key, job) -- protected: what an operator made something else of owns nothing
    if type(value) ~= 'string' then value = false end
    if value and string.sub(value, -2) ~= ':c' then redis.call('HSET', slots_key, job, value .. ':c') end
    redis.call('HSET', job_key, 'state', 'cancelling', 'why', 'expired')
    if value then redis.pcall('XADD', key('dispatch', node), '*', 'c', job .. ' ' .. attempt) end -- as in cancel.lua
    again_at = now + GRACE
    expired = expired + 1
  elseif state == 'cancelling' and late and node then
    -- The agent did not confirm: its handler may still run, but owns nothing any more.
    local value = redis.pcall('HGET', slots_key, job)
    local held = string.match(type(value) == 'string' and value or '', '^' .. attempt .. ':[^:]*:(%d+)')
    if held then
      redis.call('HDEL', slots_key, job)
      used = math.max((tonumber(string.match(redis.call('HGET', slots_key, 'sum') or '', '^%d+$')) or 0) - held, 0)
      redis.call('HSET', slots_key, 'sum', used)
    end
    expire(node)
  end
  if again_at then
    redis.call('ZADD', due_key, string.format('%.0f', again_at), job)
  else
    redis.pcall('ZREM', due_key, job) -- protected: finish may have taken out the last
  end
end
index_finished()
for class, definition in pairs(unparked) do
  if not known[class] then reply[#reply + 1], reply[#reply + 2] = class, definition end
end
if forget_gone(most) then reply[2] = '1' end
reply[1] = expired
return reply

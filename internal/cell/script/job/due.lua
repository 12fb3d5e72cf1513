-- due: does what is due. Jobs for later, and jobs whose pause is over, begin to wait for a slot.
-- Jobs past their deadline expire. If such a job runs, its node is asked to stop it; after a grace
-- the slot is taken back. A job that was accepted although no node fitted, and has waited for one as
-- long as it may, is reported to the caller, which knows the nodes. Its next call decides: the job
-- expires, or waits on like any other.
--
-- Guarantee: a job is changed once; repeating a call finds nothing to do. If Redis refuses writes,
-- it refuses this call even if nothing is due. A job for later that would give its tenant too many
-- kinds of waiting jobs is looked at again a second later. So is a reported job without a decision,
-- because its caller may be gone. Only a job that has not begun expires for lack of a node.
--
-- KEYS[1] due  zset   KEYS[2] finished  zset   KEYS[3] waiting  hash   KEYS[4] version:waiting  string
-- ARGV[1] most jobs   ARGV[2..] for each reported job: job, '1' if a node fits it, '0' if none does
-- Also removes places from the index of finished jobs whose records are gone.
-- Returns {jobs that expired, '1' if there is more, {job, slots, class, definition, ...}, class,
--   definition, ...}: in the list the reported jobs, behind it the classes of the jobs that wait now
-- Foreign keys (jobs, queues, slots, load, dispatch, gateways, replies) come from records of this cell.
-- Redis 7.0. Cost: O(jobs due).
local due_key, finished_key, waiting_key, waiting_version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local most = tonumber(ARGV[1])
local GRACE = 30000 -- ms that a node has to stop a job that passed its deadline
local HELD = 1000 -- ms until the next look at a job that is left as it is for now
local NO_NODE = '{"code":"no_matching_node","message":"no node that fits came within max_wait_for_node"}'
local used = 0
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/record.lua
-- include lib/end_job.lua
-- include lib/attempts.lua
-- include lib/queue.lua
-- include lib/kinds.lua
-- include lib/limit.lua
-- include lib/deliver.lua
-- include lib/places.lua

local ids = sure('ZRANGEBYSCORE', due_key, '-inf', at, 'LIMIT', 0, most)
local expired, known, reported, reply = 0, {}, {}, {0, #ids == most and '1' or '0', {}}
local listed, fits = {}, {}
for _, id in ipairs(ids) do listed[id] = true end
for i = 2, #ARGV, 2 do
  local id = ARGV[i]
  fits[id] = ARGV[i + 1]
  if not listed[id] then ids[#ids + 1] = id end
end
local job_keys, jobs, keys = {}, {}, {}
for i, id in ipairs(ids) do job_keys[i] = key('jobs', id) end
here(due_key, job_keys)
for i, id in ipairs(ids) do
  -- Protected: a key of another type is no job, and must not hold up the others.
  local record = redis.pcall('HMGET', job_keys[i], 'state', 'job', 'run', 'reply_to', 'error', 'why', 'gates', 'idem', 'kinds', 'node_by')
  local tenant, slots, _, _, class, priority, _, deadline, definition = read_job(record[2])
  local job = {
    id = id, key = job_keys[i], state = record[1], static = record[2], reply_to = record[4], failure = record[5] or '', why = record[6],
    tenant = tenant, slots = slots, class = class, priority = priority, deadline = tonumber(deadline) or 0, definition = definition, kinds = tonumber(record[9]),
  }
  job.attempt, job.node = string.match(record[3] or '', '^(%d+) (%S+) ')
  job.late = job.deadline > 0 and job.deadline <= now
  job.node_by = tenant and not job.attempt and tonumber(record[10]) or nil
  -- If a reported job is not due now, only its wait for a node can end.
  if listed[id] or job.state == 'waiting' and job.node_by and job.node_by <= now then jobs[#jobs + 1] = job end
  queue_keys(record[2], keys)
  if job.kinds and tenant then keys[#keys + 1] = key('kinds', tenant) end
  limits_of[id], keyed[id] = record[7], record[8]
  if record[7] then limit_keys(record[7], keys) end
  if job.node then keys[#keys + 1] = key('slots', job.node) end
end
here(due_key, keys)
-- No job has this name: this write needs no memory, as in cancel.lua. It also shows replicas that
-- Redis takes writes.
redis.call('ZREM', due_key, '-')

-- Jobs that join a queue go first: while a hash slot migrates, a queue that became empty cannot be
-- written any more.
for _, job in ipairs(jobs) do
  local limit = job.state == 'scheduled' and job.tenant and not job.late and job.kinds
  job.held = limit and too_many_kinds(job.tenant, sure('ZCARD', key('waiting', job.class)), limit)
  if (job.state == 'retry_wait' or job.state == 'scheduled') and job.tenant and not job.late and not job.held then
    redis.call('HSET', job.key, 'state', 'waiting')
    -- The tenant's weight is not known any more for a job for later.
    local score = job.state == 'scheduled' and fair_score(job.class, job.tenant, job.slots, job.priority, 1) or front_score(job.class, job.priority)
    if join_queue(job.id, job.class, job.definition, score) and limit then add_kind(job.tenant, job.class) end
    if not known[job.class] then
      known[job.class], reply[#reply + 1], reply[#reply + 2] = true, job.class, job.definition
    end
    job.state = 'waiting'
  end
end
for _, job in ipairs(jobs) do
  local state, node, attempt, late = job.state, job.node, job.attempt, job.late
  local slots_key, next_look = node and key('slots', node), nil
  local function expire(failure)
    leave_limits(job.id, job.static)
    end_job(job.id, job.key, node or '-', attempt or 0, job.reply_to, job.static, 'expired', '', failure or job.failure)
  end

  if (state == 'waiting' or state == 'retry_wait' or state == 'scheduled') and late then
    if state == 'waiting' then leave_queue(job.class, job.id) end
    expire()
    expired = expired + 1
  elseif job.held then
    next_look = now + HELD
  elseif state == 'waiting' and job.node_by and job.node_by <= now and not fits[job.id] then
    local n = #reported
    reported[n + 1], reported[n + 2], reported[n + 3], reported[n + 4] = job.id, job.slots, job.class, job.definition
    next_look = job.deadline > 0 and math.min(now + HELD, job.deadline) or now + HELD
  elseif state == 'waiting' and job.node_by and job.node_by <= now and fits[job.id] == '0' then
    leave_queue(job.class, job.id)
    expire(NO_NODE)
    expired = expired + 1
  elseif state == 'waiting' then
    if job.node_by and job.node_by <= now then
      redis.call('HDEL', job.key, 'node_by')
      job.node_by = nil
    end
    next_look = first_look(string.format('%.0f', job.deadline), job.node_by)
  elseif (state == 'running' or state == 'cancelling') and late and node and job.why ~= 'expired' then
    local value = redis.pcall('HGET', slots_key, job.id) -- protected: a key of another type owns nothing
    if type(value) ~= 'string' then value = false end
    if value and string.sub(value, -2) ~= ':c' then redis.call('HSET', slots_key, job.id, value .. ':c') end
    redis.call('HSET', job.key, 'state', 'cancelling', 'why', 'expired')
    local load = value and redis.pcall('MGET', key('load', node))[1] -- as in cancel.lua
    if value then deliver(node, key('dispatch', node), load, 'c', job.id .. ' ' .. attempt) end
    next_look = now + GRACE
    expired = expired + 1
  elseif state == 'cancelling' and late and node then
    -- The agent did not confirm: its handler may still run, but it owns nothing any more.
    local value = redis.pcall('HGET', slots_key, job.id)
    local held = string.match(type(value) == 'string' and value or '', '^' .. attempt .. ':[^:]*:(%d+)')
    if held then
      redis.call('HDEL', slots_key, job.id)
      used = math.max((tonumber(string.match(redis.call('HGET', slots_key, 'sum') or '', '^%d+$')) or 0) - held, 0)
      redis.call('HSET', slots_key, 'sum', used)
      note_attempt(job.key, node, attempt, 'expired', '')
    end
    expire()
  elseif (state == 'running' or state == 'cancelling') and job.deadline > 0 and not late then
    next_look = job.deadline -- it got its node in time
  end
  if next_look then
    redis.call('ZADD', due_key, string.format('%.0f', next_look), job.id)
  else
    redis.pcall('ZREM', due_key, job.id) -- protected: end_job may have taken out the last
  end
end
index_finished()
for class, definition in pairs(released) do
  if not known[class] then reply[#reply + 1], reply[#reply + 2] = class, definition end
end
if forget_gone(finished_key, most) then reply[2] = '1' end
reply[1], reply[3] = expired, reported
return reply

-- Gates bound how many jobs of a tenant or of a concurrency key run or wait at a time. The field gates of a
-- record has the weight of its tenant and behind it the name and limit of each of the job's, parted by spaces: 'r:<tenant>' and 'k:<tenant>:<hash>' count jobs that run,
-- 'w:<tenant>' those that wait, have a pause or are for later. gate:<name> is the set of the jobs that count,
-- so that to count one twice changes nothing; gates has the limits by name. A job that waits and that a gate
-- does not let through stands in parked:<gate> ('class job', by priority and age) instead of
-- the queue of its class, where it would hide those behind it; parked has the gates of which that is so. Whoever
-- stops to run lets the next ones back into their queues.
--
-- Where a key is on another server, as during the migration of a hash slot, a job may go on counting, or stay
-- parked, until the next look at all gates (queue/limits.lua), which mends both.
-- Needs: PREFIX, TAG, TAGS, at, fair_score, front_score, job_parts, key, stand_in_line, sure,
--   waiting_key, waiting_version_key
-- Sets: quit
-- Defines: MOST_BACK, ONE_LOOK, came, forget_limit, gate_keys, gates_key, held, let_in, let_in_by,
--   park, parked_key, passes, room, shut, unpark, unparked, waits_again
local gates_key, parked_key = PREFIX .. ':gates' .. TAG, PREFIX .. ':parked' .. TAG
local ONE_LOOK = 16 -- how many that are parked are looked at when a job ends
local MOST_BACK = 128 -- how many come back into their queues in one call, so that it does not stop Redis; the others come at a next look
local unparked, came = {}, 0 -- class -> definition, of the jobs that came back into their queues, and how many
local let_in, let_in_by = {}, {} -- gate -> class -> how many of them, which do not count yet; job -> that of its gate

-- gate_keys: appends the keys that belong to these gates.
local function gate_keys(text, keys)
  keys[#keys + 1], keys[#keys + 2] = gates_key, parked_key
  for name in string.gmatch(text, '%a:%S+') do
    keys[#keys + 1], keys[#keys + 2] = key('gate', name), key('parked', name)
  end
  return keys
end

-- room: how many more jobs the gate lets through.
-- own is the limit that a job came with: that of the last job holds while it is known, and is no
-- edit: nothing is less than nan, nor more.
local function room(name, own)
  local known = redis.pcall('HGET', gates_key, name)
  local limit = type(known) == 'string' and string.find(known, '^[1-9]%d*$') and tonumber(known) or tonumber(own)
  return limit - (tonumber(redis.pcall('SCARD', key('gate', name))) or limit)
end

-- shut: the first gate that does not let the job through now; nil where all do.
local function shut(job, text)
  for name, own in string.gmatch(text, '(%a:%S+) (%d+)') do
    -- A job that still counts, as a migrating hash slot can leave it, passes.
    if string.sub(name, 1, 2) ~= 'w:' and room(name, own) < 1 and redis.pcall('SISMEMBER', key('gate', name), job) == 0 then return name, own end
  end
end

-- forget_limit: forgets the limit of a concurrency key that nobody has any more: there can be as many as jobs.
local function forget_limit(name)
  if string.sub(name, 1, 2) == 'k:' and redis.pcall('EXISTS', key('gate', name), key('parked', name)) == 0 then
    redis.pcall('HDEL', gates_key, name)
  end
end

-- park: has a job wait for a gate, where it keeps its place; static is the field job of its record.
local function park(job, class, static, name, own)
  local submitted, priority = string.match(static, '^%S+ %d+ (%d+) %d+ %x+ (%d) ')
  sure('ZADD', key('parked', name), 'NX', string.format('%.0f', (9 - priority) * TAGS + submitted), class .. ' ' .. job)
  sure('ZADD', parked_key, 'NX', at, name)
  sure('HSETNX', gates_key, name, own)
end

-- held: whether one of its gates holds a job back.
local function held(job, class, text)
  for name in string.gmatch(text, '%a:%S+') do
    if type(redis.pcall('ZSCORE', key('parked', name), class .. ' ' .. job)) == 'string' then return true end
  end
end

-- passes: a job begins to run. Protected: the slot that it has is worth more than what is counted.
local function passes(job, text)
  for name, own in string.gmatch(text, '(%a:%S+) (%d+)') do
    pcall(sure, string.sub(name, 1, 2) == 'w:' and 'SREM' or 'SADD', key('gate', name), job)
    pcall(sure, 'HSETNX', gates_key, name, own)
  end
end

local function waits_again(job, text) -- a job has a pause, or waits
  for name, own in string.gmatch(text, '(%a:%S+) (%d+)') do
    if string.sub(name, 1, 2) == 'w:' then
      redis.pcall('SADD', key('gate', name), job)
      redis.pcall('HSETNX', gates_key, name, own)
    end
  end
end

-- unpark: has parked jobs, as many of each class as the gate has room for, stand in their
-- queues again; at most look are looked at, so that jobs of a class without nodes do not hold up others.
-- Returns how many were looked at.
local function unpark(name, look)
  local parked = key('parked', name)
  if redis.pcall('EXISTS', parked) == 0 then return 0 end
  local free, begun = room(name, 1), let_in[name] or {}
  if free < 1 or came >= MOST_BACK then return 0 end
  let_in[name] = begun
  local members = redis.pcall('ZRANGE', parked, 0, look - 1)
  if members.err then return 0 end
  for _, member in ipairs(members) do
    if came >= MOST_BACK then break end
    local class, job = string.match(member, '^(%x+) (%S+)$')
    if free > (begun[class or ''] or 0) then
      local job_key = key('jobs', job or '')
      local all = redis.pcall('EXISTS', parked, job_key, parked_key, waiting_key, waiting_version_key, key('waiting', class or ''), key('fair', class or ''))
      if type(all) == 'table' then return #members end
      local record = redis.pcall('HMGET', job_key, 'state', 'job', 'reply_to', 'charged', 'gates')
      local tenant, slots, its, priority, _, _, definition = job_parts(record[2])
      redis.call('ZREM', parked, member)
      if record[1] == 'waiting' and tenant and its == class then
        local weight = tonumber(string.match(record[5] or '', '^(%d+) ') or '1')
        stand_in_line(job, class, definition, record[4] and front_score(class, priority) or fair_score(class, tenant, slots, priority, weight))
        if not record[4] then redis.call('HSET', job_key, 'charged', '1') end
        begun[class], unparked[class] = (begun[class] or 0) + 1, definition
        let_in_by[job], came = begun, came + 1
        -- Protected: a hint. Where it is lost the sweep finds the job.
        if record[3] and record[3] ~= '' then redis.pcall('XADD', key('replies', record[3]), 'NOMKSTREAM', '*', 'w', job .. ' ' .. class) end
      end
    end
  end
  if redis.pcall('EXISTS', parked) == 0 then redis.pcall('ZREM', parked_key, name) end
  return #members
end

-- quit: a job runs and waits no more.
quit = function(job, text, static)
  local _, _, class = job_parts(static)
  local begun = let_in_by[job] -- it came back in this very call: another one may in its place
  if begun and begun[class] then begun[class], let_in_by[job] = begun[class] - 1, nil end
  for name in string.gmatch(text, '%a:%S+') do
    redis.pcall('SREM', key('gate', name), job)
    local parked = key('parked', name)
    if class and redis.pcall('ZREM', parked, class .. ' ' .. job) == 1 and redis.pcall('EXISTS', parked) == 0 then
      redis.pcall('ZREM', parked_key, name)
    end
    unpark(name, ONE_LOOK)
    forget_limit(name)
  end
end

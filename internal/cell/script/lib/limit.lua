-- limit: enforces max_running, max_waiting and max_running of a concurrency key: how many jobs of a
-- tenant or key run or wait at a time in this cell. Stored names are older, and stay: a key or field
-- calls limits gates, and limited jobs, which are those that a limit holds back, parked.
--
-- The field gates of a record holds the tenant's weight, then name and number of each limit of the
-- job, separated by spaces. r:<tenant> and k:<tenant>:<hash> count running jobs. w:<tenant> counts
-- jobs that wait, have a pause or are for later.
--
-- gate:<name> is the set of jobs that count, so that counting a job twice changes nothing. gates
-- holds the number of each limit by name: the latest submission sets it. A limited job is in
-- parked:<name> ('class job', by priority and age). It is not in the queue of its class, where it
-- would hide the jobs behind it. parked holds the names of limits with such jobs. When a job stops
-- running, the next ones return to their queues.
--
-- While a hash slot migrates a key may be on another server. A job may then keep counting, or stay
-- limited, until limits.lua looks at all limits.
-- Needs: PREFIX, TAG, TAGS, at, fair_score, front_score, join_queue, key, read_job, sure,
--   waiting_key, waiting_version_key
-- Defines: BACK, LOOK_AT_END, closed_limit, count_running, count_waiting, forget_limit,
--   full_limits_key, is_limited, leave_limits, let_in, let_in_by, limit_job, limit_keys, limits_key,
--   limits_of, release_jobs, released, returned, room
local limits_key, full_limits_key = PREFIX .. ':gates' .. TAG, PREFIX .. ':parked' .. TAG
local LOOK_AT_END = 16 -- how many limited jobs are looked at when a job ends
local BACK = 128 -- the most jobs that return to their queues in one call, so that it does not block Redis
local limits_of = {} -- job -> field gates of its record
local released, returned = {}, 0 -- class -> definition, for jobs that returned to their queues; how many returned
local let_in, let_in_by = {}, {} -- limit -> class -> returned jobs that do not count yet; job -> its limit's table

-- limit_keys: appends the keys of these limits.
local function limit_keys(text, keys)
  keys[#keys + 1], keys[#keys + 2] = limits_key, full_limits_key
  for name in string.gmatch(text, '%a:%S+') do
    keys[#keys + 1], keys[#keys + 2] = key('gate', name), key('parked', name)
  end
  return keys
end

-- room: returns how many more jobs the limit lets through. own is the number that a job brings, for
-- a limit whose number is not known.
local function room(name, own)
  local known = redis.pcall('HGET', limits_key, name)
  local limit = type(known) == 'string' and string.find(known, '^[1-9]%d*$') and tonumber(known) or tonumber(own)
  return limit - (tonumber(redis.pcall('SCARD', key('gate', name))) or limit)
end

-- closed_limit: returns name and number of the first limit that does not let the job run now; nil
-- if all do.
local function closed_limit(job, text)
  for name, own in string.gmatch(text, '(%a:%S+) (%d+)') do
    -- A job that still counts passes. A migrating hash slot can leave one.
    if string.sub(name, 1, 2) ~= 'w:' and room(name, own) < 1 and redis.pcall('SISMEMBER', key('gate', name), job) == 0 then return name, own end
  end
end

-- forget_limit: forgets a concurrency key that no job has any more. There can be as many keys as
-- jobs.
local function forget_limit(name)
  if string.sub(name, 1, 2) == 'k:' and redis.pcall('EXISTS', key('gate', name), key('parked', name)) == 0 then
    redis.pcall('HDEL', limits_key, name)
  end
end

-- limit_job: makes a job wait for a limit. The job keeps its place.
local function limit_job(job, class, priority, submitted_at, name, own)
  sure('ZADD', key('parked', name), 'NX', string.format('%.0f', (9 - priority) * TAGS + submitted_at), class .. ' ' .. job)
  sure('ZADD', full_limits_key, 'NX', at, name)
  sure('HSETNX', limits_key, name, own)
end

local function is_limited(job, class, text)
  for name in string.gmatch(text, '%a:%S+') do
    if type(redis.pcall('ZSCORE', key('parked', name), class .. ' ' .. job)) == 'string' then return true end
  end
end

-- count_running: a job begins to run. Protected: the job's slot is worth more than a correct count.
local function count_running(job, text)
  for name, own in string.gmatch(text, '(%a:%S+) (%d+)') do
    pcall(sure, string.sub(name, 1, 2) == 'w:' and 'SREM' or 'SADD', key('gate', name), job)
    pcall(sure, 'HSETNX', limits_key, name, own)
  end
end

-- count_waiting: a job waits, has a pause or is for later.
local function count_waiting(job, text)
  for name, own in string.gmatch(text, '(%a:%S+) (%d+)') do
    if string.sub(name, 1, 2) == 'w:' then
      redis.pcall('SADD', key('gate', name), job)
      redis.pcall('HSETNX', limits_key, name, own)
    end
  end
end

-- release_jobs: returns limited jobs to their queues, as many of each class as the limit has room
-- for. It looks at no more than look jobs, so that jobs of a class without nodes do not hold up
-- others. Returns how many it looked at.
local function release_jobs(name, look)
  local limited_key = key('parked', name)
  if redis.pcall('EXISTS', limited_key) == 0 then return 0 end
  local free, begun = room(name, 1), let_in[name] or {}
  local half = 512 -- of the classes with waiting jobs that there may be
  if free < 1 or returned >= BACK then return 0 end
  let_in[name] = begun
  local members = redis.pcall('ZRANGE', limited_key, 0, look - 1)
  if members.err then return 0 end
  for _, member in ipairs(members) do
    if returned >= BACK then break end
    local class, job = string.match(member, '^(%x+) (%S+)$')
    -- The jobs of one concurrency key can be of many classes. Those that come back make at most half
    -- of the classes that there may be; the others stay held back for now.
    if free > (begun[class or ''] or 0) and not (class and redis.pcall('HEXISTS', waiting_key, class) == 0
      and (tonumber(redis.pcall('HLEN', waiting_key)) or 0) >= half) then
      local job_key = key('jobs', job or '')
      local all = redis.pcall('EXISTS', limited_key, job_key, full_limits_key, waiting_key, waiting_version_key, key('waiting', class or ''), key('fair', class or ''))
      if type(all) == 'table' then return #members end
      local record = redis.pcall('HMGET', job_key, 'state', 'job', 'reply_to', 'charged', 'gates')
      local tenant, slots, _, _, its, priority, _, _, definition = read_job(record[2])
      redis.call('ZREM', limited_key, member)
      if record[1] == 'waiting' and its == class then
        local weight = tonumber(string.match(record[5] or '', '^(%d+) ') or '1')
        join_queue(job, class, definition, record[4] and front_score(class, priority) or fair_score(class, tenant, slots, priority, weight))
        if not record[4] then redis.call('HSET', job_key, 'charged', '1') end
        begun[class], released[class] = (begun[class] or 0) + 1, definition
        let_in_by[job], returned = begun, returned + 1
        -- Protected: this is only a hint. If it is lost, the sweep finds the job.
        if record[3] and record[3] ~= '' then redis.pcall('XADD', key('replies', record[3]), 'NOMKSTREAM', '*', 'w', job .. ' ' .. class) end
      end
    end
  end
  if redis.pcall('EXISTS', limited_key) == 0 then redis.pcall('ZREM', full_limits_key, name) end
  return #members
end

-- leave_limits: a job stops running or waiting, so others may do so in its place. static is the
-- field job of its record.
local function leave_limits(job, static)
  local text = limits_of[job]
  if not text then return end
  local _, _, _, _, class = read_job(static)
  local begun = let_in_by[job] -- it returned in this call
  if begun and begun[class] then begun[class], let_in_by[job] = begun[class] - 1, nil end
  for name in string.gmatch(text, '%a:%S+') do
    redis.pcall('SREM', key('gate', name), job)
    local limited_key = key('parked', name)
    if class and redis.pcall('ZREM', limited_key, class .. ' ' .. job) == 1 and redis.pcall('EXISTS', limited_key) == 0 then
      redis.pcall('ZREM', full_limits_key, name)
    end
    release_jobs(name, LOOK_AT_END)
    forget_limit(name)
  end
end

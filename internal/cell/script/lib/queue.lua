-- queue: the queues of waiting jobs, one for each class. waiting holds class -> definition while
-- jobs of the class wait. version:waiting changes with the set of classes. A score is the priority,
-- highest first, and below it a start tag of start-time fair queueing (Goyal, Vin, Cheng, SIGCOMM
-- 1996) over the tenants of the class. It is exact in a double, because tags stay below 2^48.
-- Needs: key, read_job, waiting_key, waiting_version_key
-- Defines: TAGS, charge, fair_score, front_score, join_queue, leave_queue, queue_keys, sure, tag
local TAGS = 281474976710656 -- 2^48

-- include lib/sure.lua

-- tag: returns a tag as a number; 0 for a text that is not one.
local function tag(text)
  return text and string.find(text, '^%d+$') and tonumber(text) or 0
end

-- queue_keys: appends the keys of the queue in which a job waits. static is the job's field job.
local function queue_keys(static, keys)
  local _, _, _, _, class = read_job(static)
  if class then keys[#keys + 1], keys[#keys + 2] = key('waiting', class), key('fair', class) end
end

-- fair_score: returns a job's place in the queue, and charges the tenant the job's slots, divided
-- by the tenant's weight. The table charges collects the charges until charge writes them: one read
-- and one write for all jobs of a call.
local function fair_score(class, tenant, slots, priority, weight, charges)
  local fair, name = key('fair', class), 't' .. tenant
  local kept = charges and charges[fair]
  local last = kept and kept[name]
  if not last then
    local tags = sure('HMGET', fair, 'v', name)
    last = math.max(tag(tags[1]), tag(tags[2]))
  end
  local start = math.min(last, TAGS - 1)
  local after = start + math.max(math.floor(slots * 1024 / weight), 1)
  if charges then
    charges[fair] = kept or {}
    charges[fair][name] = after
  else
    redis.call('HSET', fair, name, string.format('%.0f', after))
  end
  return (9 - priority) * TAGS + start
end

local function charge(charges)
  for fair, tags in pairs(charges) do
    for name, after in pairs(tags) do redis.call('HSET', fair, name, string.format('%.0f', after)) end
  end
end

-- front_score: returns the place of a job that was charged before: among the jobs that are served
-- now.
local function front_score(class, priority)
  return (9 - priority) * TAGS + math.min(tag(sure('HGET', key('fair', class), 'v')), TAGS - 1)
end

-- join_queue: puts a job into the queue of its class. known holds the classes that this call has
-- already added a job to. It returns true if the job has made the queue.
local function join_queue(job, class, definition, score, known)
  sure('ZADD', key('waiting', class), string.format('%.0f', score), job)
  if known and known[class] then return false end
  if known then known[class] = true end
  if sure('HSETNX', waiting_key, class, definition) == 0 then return false end
  sure('INCR', waiting_version_key)
  return true
end

-- leave_queue: takes a job out of the queue of its class, and forgets the class with its last job.
-- The length is read first: while a hash slot migrates Redis looks on the other server for a key
-- that has just vanished, which would end the script halfway. many is true if the caller knows that
-- others wait.
local function leave_queue(class, job, many)
  local queue = key('waiting', class)
  local last = not many and sure('ZCARD', queue) == 1
  if redis.call('ZREM', queue, job) == 1 and last then
    redis.call('DEL', key('fair', class))
    if sure('HDEL', waiting_key, class) == 1 then sure('INCR', waiting_version_key) end
  end
end

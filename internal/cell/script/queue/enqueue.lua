-- enqueue: lets jobs wait in the queues of their classes, and gives the free slots of
-- their candidates to whoever is first there.
--
-- A job for later is set aside until then.
--
-- Guarantee: no slot of a candidate stays free beside a job that waits and may have it:
-- both are looked at in the same script. Idempotent by job id: a repeated item reports
-- where the job is and changes nothing. An idempotency key makes one job as long as it is
-- kept: a second one with the key is not created.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] due  zset   KEYS[4] finished  zset
-- KEYS[5] waiting  hash          KEYS[6] version:waiting  string
-- KEYS[7..6+4n]  for each of n nodes: nodes:<node> hash, slots:<node> hash, dispatch:<node> stream, load:<node> string
-- then jobs:<job>  hash, one an item, and idem:<tenant>:<key>  string, one an idempotency key: job, space, digest of its spec
-- ARGV[1] channel   ARGV[2] heartbeat limit, ms   ARGV[3] retention, ms   ARGV[4] most jobs of a class
-- ARGV[5] how long idempotency keys are kept, ms   ARGV[6] n   ARGV[7] number of items   ARGV[8..7+n] node ids
-- then for each item: job, tenant, slots, reply-to ('' for none), timeout (ms, '' for none), class, priority, attempts that it may
--   have, definition of the class, weight of the tenant, spec, candidates (indexes from 1, joined by spaces), when to begin (ms,
--   '' for at once), which idempotency key (from 1, '' for none), digest of the spec, its limits: name and limit in turn, joined by spaces
-- Returns {now, answer, ...}, an answer an item: {1, node id, used, attempt}  assigned;  {2, node id, attempt,
--   assigned_at_ms}  was there already;  {4, position}  waits, or is set aside: 0;  {5}  refused, the queue is full;  {6, job}  the key
--   belongs to this job;  {7, job}  which was another one, by its digest;  {8}  refused, as many jobs of the tenant wait as may
-- Foreign keys (queues, jobs, replies) are of this cell.
-- Redis 7.0. Cost: O(items + jobs that begin + nodes * classes); three commands for a job that waits, five for each queue and tenant, two that all share.
local revisions_key, version_key, due_key, finished_key, waiting_key, waiting_version_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local channel, silence, retention, most, keep_keys = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local node_count, item_count = tonumber(ARGV[6]), tonumber(ARGV[7])
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/finish.lua
-- include lib/job.lua
-- include lib/record.lua
-- include lib/queue.lua
-- include lib/limit.lua
-- include lib/take.lua
-- include lib/offer.lua
-- include lib/here.lua

-- too_many: what waits is bounded by class, by the number of classes, for which replicas pay
-- with every free node, by what is due some time, and by the gate that is closed.
local MOST_CLASSES, DUE_PER_CLASS = 1024, 10
local lengths = {} -- of the queues that were looked at, by class
local function too_many(class, line, later, closed)
  if later then return sure('ZCARD', due_key) >= most * DUE_PER_CLASS end
  local length = lengths[class] or sure('ZCARD', line)
  lengths[class] = length
  if length >= most or closed and sure('ZCARD', key('parked', closed)) >= most then return true end
  return length == 0 and sure('HLEN', waiting_key) >= MOST_CLASSES and sure('HEXISTS', waiting_key, class) == 0
end

local ITEM = 16 -- arguments of an item
local from, before_jobs = 8 + node_count, 6 + 4 * node_count
local limits = {} -- gates of which the limit was written
local answers, wishes, lines, queues = {}, {}, {}, {} -- wishes: by node, the classes of the items that name it
for i = 1, item_count do
  local item = from + ITEM * (i - 1)
  local class, gates = ARGV[item + 5], ARGV[item + 15]
  queues[#queues + 1], queues[#queues + 2] = key('waiting', class), key('fair', class)
  if gates ~= '' then gate_keys(gates, queues) end
end
if TAG ~= '' then here(version_key, queues) end -- without one all keys are on one server, and stay there
local charges, known = {}, {}
-- Nearly always all are new. made has those that this call has made.
local fresh, made = redis.call('EXISTS', unpack(KEYS, before_jobs + 1, before_jobs + item_count)) == 0, {}
for i = 1, item_count do
  local item, job_key = from + ITEM * (i - 1), KEYS[before_jobs + i]
  local job, tenant, slots, reply_to, timeout, class, priority, attempts, definition, weight, spec, candidates, begin, idem, digest, own_gates =
    unpack(ARGV, item, item + ITEM - 1)
  local record = (not fresh or made[job]) and redis.call('HMGET', job_key, 'state', 'run') or {}
  local line = key('waiting', class)
  begin = tonumber(begin) or 0
  idem = idem ~= '' and KEYS[before_jobs + item_count + idem]
  local owner, owners_digest
  if idem then owner, owners_digest = string.match(redis.call('GET', idem) or '', '^(%S+) (%x+)$') end
  local gates, crowded, closed, own = nil, false, nil, nil
  if own_gates ~= '' then
    gates = weight .. ' ' .. own_gates
    for name, limit in string.gmatch(own_gates, '(%a:%S+) (%d+)') do
      if not limits[name] then sure('HSET', gates_key, name, limit) end
      limits[name] = true
      crowded = crowded or string.sub(name, 1, 2) == 'w:' and room(name, limit) < 1
    end
    closed, own = shut(job, gates)
  end
  -- enter: has the job wait, or be held back.
  local function enter()
    if not closed then
      if lengths[class] then lengths[class] = lengths[class] + 1 end
      return stand_in_line(job, class, definition, fair_score(class, tenant, slots, priority, weight, charges), known)
    end
    park(job, class, tenant .. ' ' .. slots .. ' ' .. at .. ' 0 ' .. class .. ' ' .. priority .. ' ', closed, own)
    answers[i] = {4, 0}
  end
  lines[i] = line
  if owner and (owner ~= job or not record[1]) then -- else a repetition could run again what is over and forgotten
    answers[i] = {digest == owners_digest and 6 or 7, owner}
  elseif record[1] == 'scheduled' then
    answers[i] = {4, 0}
  elseif record[1] and record[1] ~= 'waiting' and record[1] ~= 'retry_wait' then
    local attempt, node, assigned_at = string.match(record[2] or '', '^(%d+) (%S+) %S+ (%d+)$')
    answers[i] = {2, node or '', tonumber(attempt) or 0, tonumber(assigned_at) or 0}
  elseif record[1] == 'waiting' and not sure('ZRANK', line, job) then
    -- It is held back. Or its queue was lost, by an operator's hand: to say that it waits would not be true.
    if gates and held(job, class, gates) then answers[i] = {4, 0} else enter() end
  elseif not record[1] and too_many(class, line, begin > now, closed) then
    answers[i] = {5}
  elseif not record[1] and crowded then
    answers[i] = {8}
  elseif not record[1] then
    local later, deadline = begin > now, '0'
    if timeout ~= '' then deadline = string.format('%.0f', math.max(begin, now) + timeout) end
    if later or deadline ~= '0' then sure('ZADD', due_key, later and string.format('%.0f', begin) or deadline, job) end
    local state = later and 'scheduled' or 'waiting'
    local static = write_job(tenant, slots, at, retention, class, priority, attempts, deadline, definition)
    if reply_to == '' then
      redis.call('HSET', job_key, 'state', state, 'job', static, 'spec', spec)
    else
      redis.call('HSET', job_key, 'state', state, 'job', static, 'reply_to', reply_to, 'spec', spec)
    end
    if gates then
      redis.call('HSET', job_key, 'gates', gates)
      waits_again(job, gates)
    end
    if idem then redis.call('SET', idem, job .. ' ' .. digest, 'PX', keep_keys) end
    if later then
      answers[i] = {4, 0}
    else
      enter()
    end
    made[job] = true
  end
  if gates and answers[i] and answers[i][1] ~= 4 then
    for name in string.gmatch(gates, ' (k:%S+)') do forget_limit(name) end -- as of one that was refused
  end
  if not answers[i] then
    for index in string.gmatch(candidates, '%d+') do
      local wish = wishes[tonumber(index)] or {classes = {}, known = {}}
      wishes[tonumber(index)] = wish
      if not wish.known[class] then
        wish.known[class] = true
        wish.classes[#wish.classes + 1] = class
      end
    end
  end
end

charge(charges) -- before jobs begin, as the last that waits takes the tags of its queue with it

for n = 1, node_count do
  if wishes[n] then
    local first = 3 + 4 * n
    offer(ARGV[7 + n], KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], wishes[n].classes)
  end
end

local replies = {now}
for i = 1, item_count do
  local job = ARGV[from + ITEM * (i - 1)]
  if answers[i] then
    replies[i + 1] = answers[i]
  elseif assigned[job] then
    replies[i + 1] = {1, assigned[job][3], assigned[job][1], assigned[job][2]}
  else
    -- Protected: a job with a pause is in no queue, whose key may then be looked for elsewhere.
    local rank = tonumber(redis.pcall('ZRANK', lines[i], job))
    replies[i + 1] = {4, rank and rank + 1 or 0}
  end
end
return replies

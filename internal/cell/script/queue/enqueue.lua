-- enqueue: puts jobs into the queues of their classes, and gives the free slots of their candidates
-- to the first jobs there. A job for later is set aside until its time.
--
-- Guarantee: no slot of a candidate stays free beside a waiting job that may have it: the same
-- script looks at both. Idempotent by job id: a repeated item reports where the job is and changes
-- nothing. An idempotency key creates one job as long as the key is kept: a second job with the key
-- is not created.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] due  zset
-- KEYS[4] waiting  hash          KEYS[5] version:waiting  string
-- KEYS[6..5+4n]  for each of n nodes: nodes:<node> hash, slots:<node> hash, dispatch:<node> stream,
--   load:<node> string
-- then jobs:<job>  hash, one an item, and idem:<tenant>:<key>  string, one an idempotency key: job,
--   space, digest of its spec
-- ARGV[1] channel   ARGV[2] heartbeat limit, ms   ARGV[3] retention, ms
-- ARGV[4] waiting_limit: most jobs of a class   ARGV[5] how long an idempotency key is kept after
--   its submission, ms; at least until its job ends
-- ARGV[6] n   ARGV[7] number of items   ARGV[8..7+n] node ids
-- then for each item: job, tenant, slots, reply-to ('' for none), timeout (ms, '' for none), class,
--   priority, attempts that it may have, definition of the class, weight of the tenant, spec, when
--   to begin (ms, '' for at once), which idempotency key (from 1, '' for none, negative for a marker
--   that is kept for ARGV[5] alone), digest of the spec,
--   limits as in lib/limit.lua: name and limit in turn, parted by spaces; the most kinds of waiting
--   jobs of the tenant ('' for a tenant that is alone); the record's field origin, '' for none; how
--   long it waits for a node that fits (ms, '' if one is there); its candidates (nodes from 1), ''
-- Returns {now, answer, ...}, an answer an item:
--   {1, node id, used, attempt}            assigned
--   {2, node id, attempt, assigned_at_ms}  was there already
--   {4, position}                          waits, from 1; 0: is set aside or held back by a limit
--   {5}                                    refused, the queue is full
--   {6, job}, {7, job}                     the key belongs to this job; 7: the digests differ
--   {8}                                    refused, the tenant's limit of waiting jobs is reached
--   {9}, {10}                              refused, the tenant has its share of kinds; of jobs for later
-- Foreign keys (queues, limits, kinds, jobs for later, jobs, replies, gateways) are of this cell.
-- Redis 7.0. Cost: O(items + jobs that begin + nodes * classes). Three commands for a job that
-- waits, five for each queue and tenant, and two for the call.
local KEYS, ARGV = KEYS, ARGV -- a global is looked up by its name each time
local revisions_key, version_key, due_key, waiting_key, waiting_version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local channel, silence, retention, most, keep_keys = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), ARGV[5]
local node_count, item_count = tonumber(ARGV[6]), tonumber(ARGV[7])
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/release_key.lua
-- include lib/outlived.lua
-- include lib/inline.lua
-- include lib/record.lua
-- include lib/here.lua
-- include lib/queue.lua
-- include lib/limit.lua
-- include lib/fill_node.lua
-- include lib/deliver.lua
-- include lib/offer.lua
-- include lib/waiting_limit.lua
-- include lib/kinds.lua

local before_jobs, item = 5 + 4 * node_count, 8 + node_count
local items, queues, keys = {}, {}, {} -- where items begin; their queues; keys that must be on this server
for i = 1, item_count do
  local class, limits = ARGV[item + 5], ARGV[item + 14]
  items[i], queues[i] = item, key('waiting', class)
  keys[#keys + 1], keys[#keys + 2] = queues[i], key('fair', class)
  if limits ~= '' then limit_keys(limits, keys) end
  if ARGV[item + 15] ~= '' then
    keys[#keys + 1], keys[#keys + 2] = key('kinds', ARGV[item + 1]), key('later', ARGV[item + 1])
  end
  item = item + 18
  while ARGV[item] ~= '' do item = item + 1 end
  item = item + 1
end
if TAG ~= '' then here(version_key, keys) end -- without a tag all keys are on one server, and stay there
local LONGEST_JOB = 31622400000 -- ms, 366 days: how long a job without a deadline keeps its key
local answers, wishes, charges, known = {}, {}, {}, {} -- wishes: node -> the classes of the items that name it

-- too_late: reports whether the tenant has a quarter of the jobs for later. later:<tenant> has its
-- jobs by their times, and some whose times are over.
local function too_late(tenant)
  local later, quarter = key('later', tenant), math.floor(most * DUE_PER_CLASS / 4)
  if sure('ZCARD', later) < quarter then return false end
  redis.call('ZREMRANGEBYSCORE', later, '-inf', at)
  return redis.call('ZCARD', later) >= quarter
end

local written = {} -- limits that this call has written
-- Nearly always all jobs are new. made holds the jobs that this call created.
local fresh, made = redis.call('EXISTS', unpack(KEYS, before_jobs + 1, before_jobs + item_count)) == 0, {}
for i = 1, item_count do
  local job_key, queue = KEYS[before_jobs + i], queues[i]
  local job, tenant, slots, reply_to, timeout, class, priority, attempts, definition, weight, spec, begin, idem, digest, own_limits,
    most_kinds, origin, node_wait = unpack(ARGV, items[i], items[i] + 17)
  local record = (not fresh or made[job]) and redis.call('HMGET', job_key, 'state', 'run') or {}
  local state = record[1]
  begin = tonumber(begin) or 0
  local marker = string.sub(idem, 1, 1) == '-'
  idem = idem ~= '' and KEYS[before_jobs + item_count + math.abs(idem)]
  local owner, owners_digest
  if idem then owner, owners_digest = string.match(redis.call('GET', idem) or '', '^(%S+) (%x+)$') end
  if owner and outlived(owner, job, tonumber(keep_keys)) then owner = nil end
  local limits, crowded, closed, own = nil, false, nil, nil
  if own_limits ~= '' then
    limits = weight .. ' ' .. own_limits
    for name, limit in string.gmatch(own_limits, '(%a:%S+) (%d+)') do
      if not written[name] then sure('HSET', limits_key, name, limit) end
      written[name] = true
      crowded = crowded or string.sub(name, 1, 2) == 'w:' and room(name, limit) < 1
    end
    closed, own = closed_limit(job, limits)
  end
  local function wait()
    if closed then
      limit_job(job, class, priority, at, closed, own)
      answers[i] = {4, 0}
      return
    end
    if lengths[class] then lengths[class] = lengths[class] + 1 end
    local score = fair_score(class, tenant, slots, priority, weight, charges)
    if join_queue(job, class, definition, score, known) and most_kinds ~= '' then add_kind(tenant, class) end
  end
  if owner and (owner ~= job or not state) then -- else a repetition could run a forgotten job again
    answers[i] = {digest == owners_digest and 6 or 7, owner}
  elseif state == 'scheduled' then
    answers[i] = {4, 0}
  elseif state and state ~= 'waiting' and state ~= 'retry_wait' then
    local attempt, node, assigned_at = string.match(record[2] or '', '^(%d+) (%S+) %S+ (%d+)$')
    answers[i] = {2, node or '', tonumber(attempt) or 0, tonumber(assigned_at) or 0}
  elseif state == 'waiting' and not sure('ZRANK', queue, job) then
    -- The job is limited, or its queue is lost. In the latter case it does not wait yet.
    if limits and is_limited(job, class, limits) then answers[i] = {4, 0} else wait() end
  elseif not state and too_many(class, queue, begin > now, closed) then
    answers[i] = {5}
  elseif not state and crowded then
    answers[i] = {8}
  elseif not state and most_kinds ~= '' and begin > now and too_late(tenant) then
    answers[i] = {10}
  elseif not state and most_kinds ~= '' and begin <= now and not closed and
    too_many_kinds(tenant, lengths[class], tonumber(most_kinds)) then
    answers[i] = {9}
  elseif not state then
    local later, deadline = begin > now, '0'
    if timeout ~= '' then deadline = string.format('%.0f', math.max(begin, now) + timeout) end
    local node_by = node_wait ~= '' and string.format('%.0f', math.max(begin, now) + node_wait)
    local look = later and string.format('%.0f', begin) or first_look(deadline, node_by)
    if look then sure('ZADD', due_key, look, job) end
    local static = write_job(tenant, slots, at, retention, class, priority, attempts, deadline, definition)
    if reply_to == '' then
      redis.call('HSET', job_key, 'state', later and 'scheduled' or 'waiting', 'job', static, 'spec', spec)
    else
      redis.call('HSET', job_key, 'state', later and 'scheduled' or 'waiting', 'job', static, 'reply_to', reply_to, 'spec', spec)
    end
    if origin ~= '' then redis.call('HSET', job_key, 'origin', origin) end
    if node_by then redis.call('HSET', job_key, 'node_by', node_by) end
    if limits then
      redis.call('HSET', job_key, 'gates', limits)
      count_waiting(job, limits)
    end
    if idem then
      local keep = tonumber(keep_keys)
      if not marker then
        redis.call('HSET', job_key, 'idem', string.format('%.0f', now + keep) .. ' ' .. string.sub(idem, #key('idem', '') + 1))
        -- Longer than the job can live. When it ends, end_job shortens this to what is left of
        -- keep_keys.
        keep = keep + math.max(begin - now, 0) + (tonumber(timeout) or LONGEST_JOB) + KEY_STAYS
      end
      redis.call('SET', idem, job .. ' ' .. digest, 'PX', string.format('%.0f', keep))
    end
    if later and most_kinds ~= '' then
      redis.call('HSET', job_key, 'kinds', most_kinds) -- for due.lua
      sure('ZADD', key('later', tenant), string.format('%.0f', begin), job)
    end
    if later then answers[i] = {4, 0} else wait() end
    made[job] = true
  end
  if limits and answers[i] and answers[i][1] ~= 4 then
    for name in string.gmatch(limits, ' (k:%S+)') do forget_limit(name) end -- the job was refused
  end
  local candidate = items[i] + 18
  while not answers[i] and ARGV[candidate] ~= '' do
    local index = ARGV[candidate]
    local wish = wishes[index] or {classes = {}, known = {}}
    wishes[index] = wish
    if not wish.known[class] then
      wish.known[class] = true
      wish.classes[#wish.classes + 1] = class
    end
    candidate = candidate + 1
  end
end

charge(charges) -- before jobs begin, because the last waiting job takes the tags of its queue with it

for n = 1, node_count do
  local wish, first = wishes[n .. ''], 2 + 4 * n
  if wish then offer(ARGV[7 + n], KEYS[first], KEYS[first + 1], KEYS[first + 2], KEYS[first + 3], wish.classes) end
end

local replies = {now}
for i = 1, item_count do
  local job = ARGV[items[i]]
  if answers[i] then
    replies[i + 1] = answers[i]
  elseif assigned[job] then
    replies[i + 1] = {1, assigned[job][3], assigned[job][1], assigned[job][2]}
  else
    -- Protected: a job in a pause is in no queue, and Redis may look for the queue's key on another
    -- server.
    local rank = tonumber(redis.pcall('ZRANK', queues[i], job))
    replies[i + 1] = {4, rank and rank + 1 or 0}
  end
end
return replies

-- fill_node: gives a node's free slots to the first waiting jobs of these classes, and returns the slots
-- in use afterwards and how many jobs began. Among the first jobs of the classes the priority
-- decides, then the age, which is in the ids. Within a class no job passes one that needs more
-- slots than are free: that one would wait for ever. A job is passed if the node is too small for
-- it, or if it has just failed there. Across classes no job of a lower priority passes one that
-- needs more room, and after a while no later job does. give gets the fields j and s of the
-- delivery of each job that begins.
-- Needs: INLINE_SPEC, TAG, TAGS, at, closed_limit, count_running, key, leave_queue, limit_keys,
--   now, limit_job, read_job, sure, tag, waiting_key, waiting_version_key
-- Defines: AVOID, LOOK, LOOKS, PATIENCE, assigned, fill_node
local LOOK = 64 -- how many jobs of a class are looked at to find one that the node may take
local LOOKS = 96 -- how many jobs of all classes together are looked at, but at least two of each
local PATIENCE = 10000 -- ms for which jobs of the same priority pass one that needs more room
local AVOID = 2000 -- ms for which a job is not given to a node on which it has just failed
local assigned = {} -- job -> {slots in use then, attempt, node}

local function fill_node(node, epoch, max, used, slots_key, classes, give)
  local looks = 0
  local function put_aside(job, limit, own)
    leave_queue(job.class, job.id)
    redis.call('HSET', job.key, 'charged', '1')
    limit_job(job.id, job.class, job.priority, job.submitted_at, limit, own)
  end

  -- head: returns the job of a class that is next on this node; nil if there is none.
  local function head(class)
    local queue, from, to = key('waiting', class), 0, 1 -- nearly always it is the first or the second
    while true do
      -- This call and the next ones are protected: while a hash slot migrates keys may be on
      -- another server, and the script must not end in the middle of its work.
      local jobs, gone = redis.pcall('ZRANGE', queue, from, to, 'WITHSCORES'), false
      if jobs.err then return nil end
      for i = 1, #jobs, 2 do
        local job = jobs[i]
        local job_key = key('jobs', job)
        looks = looks + 1
        -- Without a tag all keys are on one server, and stay there.
        local all = TAG ~= '' and redis.pcall('EXISTS', queue, job_key, waiting_key, waiting_version_key, key('fair', class))
        if type(all) == 'table' then return nil end
        -- Also reads the spec if this is very likely the job: on most nodes one class waits.
        local record = #classes == 1 and i == 1 and redis.pcall('HMGET', job_key, 'state', 'job', 'run', 'reply_to', 'fails', 'gates', 'spec')
          or redis.pcall('HMGET', job_key, 'state', 'job', 'run', 'reply_to', 'fails', 'gates')
        local tenant, slots, submitted_at, _, _, priority, _, deadline = read_job(record[2])
        if record.err or record[1] ~= 'waiting' or not tenant then
          leave_queue(class, job) -- of another form, or deleted
          gone = true
        elseif deadline == '0' or tonumber(deadline) > now then -- otherwise its time is over: due.lua ends it
          slots = tonumber(slots)
          local failed_at, failed_on = string.match(record[5] or '', '^%d+ (%d+) (%S+)$')
          local avoid = failed_on == node and now - tonumber(failed_at) < AVOID
          if slots <= max and not avoid then
            local limits = record[6]
            if limits and type(redis.pcall('EXISTS', queue, unpack(limit_keys(limits, {})))) == 'table' then return nil end
            local next = {id = job, key = job_key, class = class, limits = limits, score = tonumber(jobs[i + 1]), slots = slots,
              tenant = tenant, priority = priority, submitted_at = tonumber(submitted_at), run = record[3], reply_to = record[4],
              spec = record[7], many = i == 1 and #jobs > 2}
            local closed, own
            if limits then closed, own = closed_limit(job, limits) end
            if not closed then return next end
            put_aside(next, closed, own)
            gone = true
          end
        end
      end
      if looks >= LOOKS and gone then return nil end
      if not gone then
        if #jobs < 2 * (to - from + 1) or to >= LOOK - 1 or looks >= LOOKS then return nil end
        from, to = to + 1, math.min(LOOK - 1, to + LOOKS - looks)
      end
    end
  end

  local function before(a, b)
    local first, second = math.floor(a.score / TAGS), math.floor(b.score / TAGS)
    if first ~= second then return first < second end
    return string.sub(a.id, -26) < string.sub(b.id, -26)
  end

  local function begin(next)
    local job, attempt = next.id, tonumber(string.match(next.run or '', '^(%d+) ') or '0') + 1
    local start, fair = next.score % TAGS, key('fair', next.class)
    if start > tag(sure('HGET', fair, 'v')) then redis.call('HSET', fair, 'v', string.format('%.0f', start)) end
    leave_queue(next.class, job, next.many)
    redis.call('HSET', next.key, 'state', 'running', 'run', attempt .. ' ' .. node .. ' ' .. epoch .. ' ' .. at)
    local spec = next.spec or redis.call('HGET', next.key, 'spec') or ''
    if #spec > INLINE_SPEC then spec = '' end
    give(job .. ' ' .. attempt .. ' ' .. next.tenant, spec)
    if next.limits then count_running(job, next.limits) end
    used = used + next.slots
    redis.call('HSET', slots_key, 'sum', used, job, attempt .. ':' .. epoch .. ':' .. next.slots)
    if next.reply_to and next.reply_to ~= '' then
      redis.pcall('XADD', key('replies', next.reply_to), 'NOMKSTREAM', '*', 'a', job .. ' ' .. attempt .. ' ' .. node .. ' ' .. at .. ' ' .. used)
    end
    assigned[job] = {used, attempt, node}
  end

  local heads, named, begun = {}, {}, 0
  for i, class in ipairs(classes) do
    heads[i] = not named[class] and head(class) or false -- one job must not come from two heads
    named[class] = true
  end
  while used < max do
    local best, large -- large: the first job that needs more room
    for i = 1, #classes do
      local next = heads[i]
      if next and next.slots > max - used then
        if not large or before(next, large) then large = next end
      elseif next and (not best or before(next, heads[best])) then
        best = i
      end
    end
    -- Leave room for a job of a higher priority, and for one that has waited for long.
    if best and large and before(large, heads[best]) and
      (math.floor(large.score / TAGS) < math.floor(heads[best].score / TAGS) or now - large.submitted_at > PATIENCE) then best = nil end
    if not best then break end
    local next = heads[best]
    local closed, own -- closed by a job that has just begun
    if next.limits then closed, own = closed_limit(next.id, next.limits) end
    if closed then
      put_aside(next, closed, own)
    else
      begin(next)
      begun = begun + 1
    end
    heads[best] = used < max and head(classes[best]) or false
  end
  return used, begun
end

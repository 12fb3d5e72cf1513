-- take: gives the free slots of a node to the first jobs that wait in these classes,
-- and returns the slots in use then and how many jobs began. Among the heads of the
-- classes priority goes first, then age, which the ids tell. A job that needs more slots
-- than are free is not passed by others of its class, or else it would wait for ever; one
-- that the node is too small for is, and one that has just failed there. Of other classes jobs
-- of a lower priority do not pass it either, and after a while none that came later.
-- Needs: INLINE_SPEC, TAG, TAGS, at, gate_keys, job_parts, key, leave_line, now, park, passes,
--   shut, sure, tag, waiting_key, waiting_version_key
-- Defines: ANSWER, AVOID, LOOK, LOOKS, PATIENCE, assigned, take
local LOOK = 64 -- how many of a class are looked at for one that the node may take
local LOOKS = 96 -- how many of all classes together, but that two of each always are
local PATIENCE = 10000 -- ms that a job waits for room while others of its priority pass it
local AVOID = 2000 -- ms for which a node gets no job that has just failed on it
local ANSWER = 131072 -- bytes of specs that an answer brings; the others are read by who runs the job
local assigned = {} -- job -> {slots in use then, attempt}

local function take(node, epoch, max, used, slots_key, dispatch_key, classes, handed)
  local looks, left = 0, ANSWER
  local function put_aside(class, job, job_key, static, name, own)
    leave_line(class, job)
    redis.call('HSET', job_key, 'charged', '1')
    park(job, class, static, name, own)
  end

  -- head: the job of a class that is next on this node, nil where there is none.
  local function head(class)
    local line, from, to = key('waiting', class), 0, 1 -- the first or second is the one, nearly always
    while true do
      -- Protected, as what follows: while a hash slot migrates keys may be on another
      -- server, and the script must not end in the middle of its work.
      local jobs, gone = redis.pcall('ZRANGE', line, from, to, 'WITHSCORES'), false
      if jobs.err then return nil end
      for i = 1, #jobs, 2 do
        local job = jobs[i]
        local job_key = key('jobs', job)
        looks = looks + 1
        -- Without a tag the keys are on one server, and stay there.
        local all = TAG ~= '' and redis.pcall('EXISTS', line, job_key, waiting_key, waiting_version_key, key('fair', class))
        if type(all) == 'table' then return nil end
        -- With the spec where it is the one, very likely: most nodes have one class that waits.
        local record = #classes == 1 and i == 1 and redis.pcall('HMGET', job_key, 'state', 'job', 'run', 'reply_to', 'fails', 'gates', 'spec')
          or redis.pcall('HMGET', job_key, 'state', 'job', 'run', 'reply_to', 'fails', 'gates')
        local tenant, slots, _, _, _, deadline = job_parts(record[2])
        if record.err or record[1] ~= 'waiting' or not tenant then
          leave_line(class, job) -- what an operator edited or deleted
          gone = true
        elseif deadline == 0 or deadline > now then -- else its time is over, which whoever handles due jobs says
          local failed_at, failed_on = string.match(record[5] or '', '^%d+ (%d+) (%S+)$')
          local avoid = failed_on == node and now - tonumber(failed_at) < AVOID
          if slots <= max and not avoid then
            local names = record[6]
            if names and type(redis.pcall('EXISTS', line, unpack(gate_keys(names, {})))) == 'table' then return nil end
            local closed, own
            if names then closed, own = shut(job, names) end
            if not closed then return {job = job, gates = names, key = job_key, class = class, score = tonumber(jobs[i + 1]), slots = slots,
              tenant = tenant, static = record[2], run = record[3], reply_to = record[4], spec = record[7], many = i == 1 and #jobs > 2,
              since = tonumber(string.match(record[2], '^%S+ %d+ (%d+) ') or '0')} end
            put_aside(class, job, job_key, record[2], closed, own)
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
    return string.sub(a.job, -26) < string.sub(b.job, -26)
  end

  local function begin(next)
    local job, attempt = next.job, tonumber(string.match(next.run or '', '^(%d+) ') or '0') + 1
    local start, fair = next.score % TAGS, key('fair', next.class)
    if start > tag(sure('HGET', fair, 'v')) then redis.call('HSET', fair, 'v', string.format('%.0f', start)) end
    leave_line(next.class, job, next.many)
    redis.call('HSET', next.key, 'state', 'running', 'run', attempt .. ' ' .. node .. ' ' .. epoch .. ' ' .. at)
    local spec = next.spec or redis.call('HGET', next.key, 'spec') or ''
    if #spec > INLINE_SPEC then spec = '' end
    local head = job .. ' ' .. attempt .. ' ' .. next.tenant
    if handed then
      if #spec > left then spec = '' end
      left = left - #spec
      handed[#handed + 1], handed[#handed + 2] = head, spec
    else
      -- Protected: the stream only delivers, the next heartbeat would mend it.
      redis.pcall('XADD', dispatch_key, '*', 'j', head, 's', spec)
    end
    if next.gates then passes(job, next.gates) end
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
    local best, large -- large: the first of those that need more room
    for i = 1, #classes do
      local next = heads[i]
      if next and next.slots > max - used then
        if not large or before(next, large) then large = next end
      elseif next and (not best or before(next, heads[best])) then
        best = i
      end
    end
    -- Room is left to one of a higher priority, and to one that has waited for long.
    if best and large and before(large, heads[best]) and
      (math.floor(large.score / TAGS) < math.floor(heads[best].score / TAGS) or now - large.since > PATIENCE) then best = nil end
    if not best then break end
    local next = heads[best]
    local closed, own -- by one that has just begun
    if next.gates then closed, own = shut(next.job, next.gates) end
    if closed then
      put_aside(next.class, next.job, next.key, next.static, closed, own)
    else
      begin(next)
      begun = begun + 1
    end
    heads[best] = used < max and head(classes[best]) or false
  end
  return used, begun
end

-- end_job: gives a job its terminal state, once, and informs the replica that waits for it. Without
-- a reply stream nothing is sent: that replica is gone, and the record keeps the result. If Redis
-- refuses the reply, the script goes on: the stream may be on another server while a hash slot
-- migrates, and a replica reads the records of jobs that it hears nothing about. used is the number
-- of slots of the node in use after the job.
-- An end that is no success is in ended:<state>, too. A dead job is there alone, because it is kept
-- for longer than other jobs: for as long as the field dead_ms of ended says, which replicas write.
-- Needs: PREFIX, TAG, at, due_key, finished_key, key, now_us, read_job, used
-- Defines: ENTRY, ENTRY_BYTES, INLINE_RESULT, INLINE_SPEC, KEY_STAYS, RETENTION, ends, end_job,
--   ended, finished, index_finished, keeps, keyed, longest, news, release_key
-- include lib/inline.lua
-- include lib/retention.lua
-- include lib/release_key.lua
local ENTRY = 400 -- an entry of a reply stream with this many fields is written
local finished, longest, ends = 0, RETENTION, {}
-- If a script fails before index_finished, replicas do not get the ends. They find them later in
-- the records.
local news = {} -- replica -> the fields of its next entry
local keyed = {} -- job -> the field idem of its record, which callers set
local keeps = {} -- retention -> PEXPIRE's argument: the same few values come often
local ended = {} -- state -> times and jobs, for ends that are no success
local function end_job(job, job_key, node, attempt, reply_to, static, state, result, failure)
  local _, _, _, retention, _, _, _, deadline = read_job(static)
  -- Protected: due may be on another server while a hash slot migrates, and due.lua skips a job
  -- that has ended.
  if deadline ~= '0' then redis.pcall('ZREM', due_key, job) end
  local keep = keeps[retention or '']
  if not keep then
    local ms = math.max(tonumber(retention) or RETENTION, 1)
    longest, keep = math.max(longest, ms), string.format('%.0f', ms)
    keeps[retention or ''] = keep
  end
  if result == '' and failure == '' then
    redis.call('HSET', job_key, 'state', state, 'finished_at_ms', at)
  elseif failure == '' then
    redis.call('HSET', job_key, 'state', state, 'finished_at_ms', at, 'result', result)
  else
    redis.call('HSET', job_key, 'state', state, 'finished_at_ms', at, 'error', failure)
    if result ~= '' then redis.call('HSET', job_key, 'result', result) end
  end
  if state == 'dead' then
    local ms = redis.pcall('HGET', PREFIX .. ':ended' .. TAG, 'dead_ms') -- protected like the index
    ms = type(ms) == 'string' and string.find(ms, '^%d+$') and tonumber(ms) or 0
    keep = string.format('%.0f', math.max(tonumber(keep), ms))
  end
  redis.call('PEXPIRE', job_key, keep)
  if keyed[job] then release_key(keyed[job]) end
  if state ~= 'succeeded' then
    local places = ended[state] or {}
    ended[state] = places
    local n = #places
    places[n + 1], places[n + 2] = now_us + finished, job
  end
  if state ~= 'dead' then
    local n = #ends
    ends[n + 1], ends[n + 2] = now_us + finished, job -- as a number, it costs least
  end
  finished = finished + 1
  if reply_to and reply_to ~= '' then
    local partial = '0'
    if #result > INLINE_RESULT then result, partial = '', '1' end
    local head = job .. ' ' .. attempt .. ' ' .. node .. ' ' .. state .. ' ' .. at .. ' ' .. used .. ' ' .. partial
    local fails -- few jobs have any, so few are read
    if tostring(attempt) ~= '1' or state ~= 'succeeded' and state ~= 'failed' then
      fails = string.match(redis.call('HGET', job_key, 'fails') or '', '^%d+')
    end
    local entry = news[reply_to]
    if not entry then
      entry = {}
      news[reply_to] = entry
    end
    local k = #entry
    entry[k + 1], entry[k + 2], entry[k + 3], entry[k + 4] = 'j', head, 'r', result
    if failure ~= '' then entry[k + 5], entry[k + 6] = 'e', failure end
    if fails then
      k = #entry
      entry[k + 1], entry[k + 2] = 'f', fails
    end
    entry.bytes = (entry.bytes or 0) + #result + #failure
    if #entry >= ENTRY or entry.bytes >= ENTRY_BYTES then
      redis.pcall('XADD', key('replies', reply_to), 'NOMKSTREAM', '*', unpack(entry))
      news[reply_to] = nil
    end
  end
end

-- index_finished: puts the jobs that end_job ended into the indexes of ended jobs, and informs the
-- replicas that wait for them with one entry each. The index of an end that is no success is
-- protected: a user of Redis that the release before made has no right to it, and while a hash slot
-- migrates it may be on another server. A dead job then has its place among the finished jobs.
local function index_finished()
  for reply_to, entry in pairs(news) do
    redis.pcall('XADD', key('replies', reply_to), 'NOMKSTREAM', '*', unpack(entry))
  end
  if finished == 0 then return end -- how long other replicas keep theirs is not known
  for state, places in pairs(ended) do
    for i = 1, #places, 2000 do
      local some = {unpack(places, i, math.min(i + 1999, #places))}
      local answer = redis.pcall('ZADD', key('ended', state), unpack(some))
      if type(answer) == 'table' and state == 'dead' then redis.call('ZADD', finished_key, unpack(some)) end
    end
  end
  for i = 1, #ends, 2000 do redis.call('ZADD', finished_key, unpack(ends, i, math.min(i + 1999, #ends))) end
  -- include lib/forget_old.lua
end

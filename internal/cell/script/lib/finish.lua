-- finish: gives a job its one terminal state and tells the replica that waits
-- for it. A reply stream that is gone belongs to a replica that is gone: nothing
-- is written, and the record keeps the result for whoever asks later. Nor does a reply
-- that cannot be written end the script, whose work would be half done then: the stream
-- may be on another server while a hash slot migrates, and a replica asks for the
-- records of jobs that it does not hear of.
-- used is what the node has in use
-- after this job: the reply brings it to the cache of the replica that placed the job.
-- Needs: at, due_key, finished_key, key, now_us
-- Defines: ENTRY, ENTRY_BYTES, INLINE_RESULT, INLINE_SPEC, RETENTION, ends, finish, finished,
--   forget, gated, index_finished, keeps, longest, quit, told, used
-- include lib/inline.lua
local RETENTION = 3600000 -- ms for which a record is kept whose field job does not say it
local finished, used, longest, ends = 0, 0, RETENTION, {}
-- What raises before index_finished costs replicas the ends so far: they find them in the records, later.
local ENTRY, told = 400, {} -- fields from which on an entry of a reply stream is written; replica -> the fields of its next one
local gated, quit = {}, nil -- job -> field gates of its record, while it counts there; how it stops to, see lib/limit.lua
local keeps = {} -- what records say of their retention -> PEXPIRE's argument: few values come often
local function finish(job, job_key, node, attempt, reply_to, static, state, result, failure)
  if gated[job] then quit(job, gated[job], static) end
  local stated, deadline = string.match(static or '', '^%S+ %d+ %d+ (%d+) %S+ %d+ %d+ (%d+) ')
  if not stated then stated = RETENTION end
  -- Protected: due may be elsewhere while a hash slot migrates, and whoever handles due jobs
  -- passes over one that has ended.
  if deadline ~= '0' then redis.pcall('ZREM', due_key, job) end
  local keep = keeps[stated]
  if not keep then
    local ms = math.max(tonumber(stated), 1)
    longest, keep = math.max(longest, ms), string.format('%.0f', ms)
    keeps[stated] = keep
  end
  if result == '' and failure == '' then
    redis.call('HSET', job_key, 'state', state, 'finished_at_ms', at)
  elseif failure == '' then
    redis.call('HSET', job_key, 'state', state, 'finished_at_ms', at, 'result', result)
  else
    redis.call('HSET', job_key, 'state', state, 'finished_at_ms', at, 'error', failure)
    if result ~= '' then redis.call('HSET', job_key, 'result', result) end
  end
  redis.call('PEXPIRE', job_key, keep)
  local n = #ends
  ends[n + 1], ends[n + 2] = now_us + finished, job -- the number costs least as it is
  finished = finished + 1
  if reply_to and reply_to ~= '' then
    local partial = '0'
    if #result > INLINE_RESULT then result, partial = '', '1' end
    local head = job .. ' ' .. attempt .. ' ' .. node .. ' ' .. state .. ' ' .. at .. ' ' .. used .. ' ' .. partial
    local fails -- few jobs have any, so few are asked
    if tostring(attempt) ~= '1' or state ~= 'succeeded' and state ~= 'failed' then
      fails = string.match(redis.call('HGET', job_key, 'fails') or '', '^%d+')
    end
    local news = told[reply_to]
    if not news then
      news = {}
      told[reply_to] = news
    end
    local k = #news
    news[k + 1], news[k + 2], news[k + 3], news[k + 4] = 'j', head, 'r', result
    if failure ~= '' then news[k + 5], news[k + 6] = 'e', failure end
    if fails then
      k = #news
      news[k + 1], news[k + 2] = 'f', fails
    end
    news.bytes = (news.bytes or 0) + #result + #failure
    if #news >= ENTRY or news.bytes >= ENTRY_BYTES then
      redis.pcall('XADD', key('replies', reply_to), 'NOMKSTREAM', '*', unpack(news))
      told[reply_to] = nil
    end
  end
end

-- index_finished: puts the jobs that finish ended into the index of finished jobs, and tells the replicas
-- that wait for them, each in one entry.
local function index_finished()
  for reply_to, news in pairs(told) do
    redis.pcall('XADD', key('replies', reply_to), 'NOMKSTREAM', '*', unpack(news))
  end
  told = {}
  for i = 1, #ends, 2000 do redis.call('ZADD', finished_key, unpack(ends, i, math.min(i + 1999, #ends))) end
  ends = {}
end

-- forget: drops what is older than the longest retention met from the index of finished jobs;
-- their records expire by themselves. At most 1000 a call, many times what one call
-- adds, so that the first call after a quiet hour does not stop Redis.
local function forget()
  if finished == 0 then return end -- how long others keep theirs is not known then
  local old = redis.call('ZCOUNT', finished_key, '-inf', string.format('(%.0f', now_us - longest * 1000))
  if old > 0 then redis.call('ZREMRANGEBYRANK', finished_key, 0, math.min(old, 1000) - 1) end
end

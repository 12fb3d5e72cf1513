-- decision: approves a request in the very script that makes its change, so that a replica that dies
-- has done both or neither, and of two admins one wins. Without a decision it does nothing.
-- Needs: decision, now, requests_key
-- Defines: asked, decided, undecided, verdict
local verdict, asked

-- undecided returns why the request cannot be approved, or false. revision is the target's now, 0 if
-- there is none.
local function undecided(revision)
  if decision == '' then return false end
  verdict = cjson.decode(decision)
  local text = redis.call('HGET', requests_key, verdict.id)
  if not text then return 'gone' end
  asked = cjson.decode(text)
  if asked.state ~= 'pending' then return asked.state end
  if asked.until_ms <= now then return 'lapsed' end
  if verdict.by == asked.author or string.sub(asked.author, 1, #verdict.by + 1) == verdict.by .. '/' then return 'own' end
  if verdict.digest ~= asked.digest or tonumber(revision) ~= (asked.revision or 0) then return 'conflict' end
  return false
end

local function decided()
  if decision == '' then return end
  asked.state, asked.decided_by, asked.comment, asked.decided_ms = 'approved', verdict.by, verdict.comment, now
  redis.call('HSET', requests_key, verdict.id, cjson.encode(asked))
  redis.call('HDEL', requests_key, verdict.id .. ':change')
end

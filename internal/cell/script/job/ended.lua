-- ended: keeps the indexes of ends that are no success: removes entries whose records are gone, and
-- the oldest dead jobs beyond dead_limit, records and all. It also tells the scripts that end jobs
-- for how long to keep a dead one.
--
-- Guarantee: touches no job but a dead one. Repeating a call finds nothing to do. The first write
-- needs no memory, so that it works even if Redis refuses other writes.
--
-- KEYS[1] ended  hash: since = when the indexes began, ms; dead_ms = how long a dead job is kept, ms
-- ARGV[1] dead_retention, ms   ARGV[2] dead_limit   ARGV[3] most entries looked at in each index
-- Returns {dead jobs that are kept, dropped, '1' if there is more to do}
-- Foreign keys (ended:<state>, jobs) are of this cell.
-- Redis 7.0. Cost: O(entries that go).
local ended_key = KEYS[1]
local retention, limit, most = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/sure.lua
-- include lib/places.lua
-- include lib/terminal_states.lua

local dead_key, more = key('ended', 'dead'), false
for state in pairs(ENDED) do
  if state ~= 'succeeded' then
    sure('ZREM', key('ended', state), '-') -- no job has this name
    more = forget_gone(key('ended', state), most) or more
  end
end
local kept, drop = sure('ZCARD', dead_key), {}
local surplus = math.min(kept - limit, most)
if surplus > 0 then
  local oldest, job_keys = redis.call('ZRANGE', dead_key, 0, surplus - 1, 'WITHSCORES'), {}
  for i = 1, #oldest, 2 do job_keys[#job_keys + 1] = key('jobs', oldest[i]) end
  here(dead_key, job_keys)
  local places = {}
  for i, job_key in ipairs(job_keys) do
    places[i] = oldest[2 * i - 1]
    -- As in retain.lua: a late call could bring a job a second time that moved here a moment ago.
    local record = redis.pcall('HMGET', job_key, 'state', 'keep', 'hop')
    if record[1] == 'dead' and not record[2] and not (record[3] and now_us - oldest[2 * i] < MOVE_RETENTION * 1000) then drop[#drop + 1] = job_key end
  end
  for i = 1, #places, 2000 do redis.call('ZREM', dead_key, unpack(places, i, math.min(i + 1999, #places))) end
  for i = 1, #drop, 2000 do redis.call('UNLINK', unpack(drop, i, math.min(i + 1999, #drop))) end
  more, kept = more or kept - surplus > limit, kept - surplus
end
local known = sure('HMGET', ended_key, 'since', 'dead_ms')
if not known[1] then redis.call('HSET', ended_key, 'since', at) end
if known[2] ~= retention then redis.call('HSET', ended_key, 'dead_ms', retention) end
return {kept, #drop, more and '1' or '0'}

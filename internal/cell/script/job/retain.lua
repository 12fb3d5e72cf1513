-- retain: keeps the records of ended jobs within retention_bytes. Beyond that the oldest are
-- dropped.
--
-- Guarantee: touches no job that has not ended. It follows the index of finished jobs from the
-- oldest to the newest, so each record is counted once, no matter which process ended the job or
-- calls this. The count may be too high, but never too low unless Redis' clock goes back. A record
-- that expires in its turn leaves the count at the latest when its part (a 64th of the limit, and
-- one record) is gone. A record that goes out of turn leaves it when its part is counted again, a
-- page a second. The first write frees memory, so that it works even if Redis refuses other writes.
--
-- A second call keeps the dead jobs in the same way: for it, read the index of dead jobs and their
-- own count instead of these two.
--
-- KEYS[1] finished  zset   KEYS[2] kept  hash: to = every job that ended before (us) is counted;
--   parts by time, b<from, us> = bytes; audit = the part that is counted again, how far (us), bytes
--   so far, when (ms)
-- ARGV[1] retention_bytes   ARGV[2] most records counted, and dropped, in this call
-- Returns {bytes kept, records dropped, '1' if there is more to do}, with the bytes as text
-- Foreign keys (jobs) are of this cell.
-- Redis 7.0. Cost: O(records looked at + parts), about 6 us a record.
local finished_key, kept_key = KEYS[1], KEYS[2]
local limit, page = tonumber(ARGV[1]), tonumber(ARGV[2])
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/here.lua
-- include lib/terminal_states.lua
local OVERHEAD = 900 -- measured bytes of a record and its index entry besides the texts
local PARTS, MOST_PARTS = 64, 256 -- parts of the limit; the most parts, which changes of the limit can lead to
local AUDIT = 1000 -- ms between two pages of the second count
local TEXTS = {'job', 'spec', 'result', 'error', 'progress', 'attempts'}

local function whole(n) return string.format('%.0f', n) end

-- read: returns the records in the index between two times, oldest first, whether there are more,
-- and where to continue. It leaves out the last microsecond of a full page, because other records
-- of that microsecond may not be in the page.
local function read(from, to)
  local found = redis.call('ZRANGEBYSCORE', finished_key, from, '(' .. whole(to), 'WITHSCORES', 'LIMIT', 0, page)
  local n, records, job_keys = #found / 2, {}, {}
  local more, stop = n == page, to
  if more then
    stop = math.floor(tonumber(found[2 * n]))
    while n > 0 and math.floor(tonumber(found[2 * n])) == stop do n = n - 1 end
    if n == 0 then n, stop = page, stop + 1 end -- only an edit gives all records of a page one time
    stop = math.max(stop, 1) -- an edit may also have set a time before 1
  end
  for i = 1, n do
    job_keys[i] = key('jobs', found[2 * i - 1])
    records[i] = {job = found[2 * i - 1], key = job_keys[i], at = tonumber(found[2 * i])}
  end
  here(finished_key, job_keys)
  return records, more, stop
end

-- size: returns 0 if the record is gone. Protected: a key of another type is no record.
local function size(job_key)
  local bytes = 0
  for _, field in ipairs(TEXTS) do
    local length = redis.pcall('HSTRLEN', job_key, field)
    if type(length) ~= 'number' then return 0 end
    bytes = bytes + length
  end
  return bytes > 0 and bytes + OVERHEAD or 0
end

-- The count so far. If it has another form, counting starts again.
local raw, to, audit, parts, gone = redis.pcall('HGETALL', kept_key), nil, nil, {}, {}
local anew = raw.err ~= nil
for i = 1, #raw, 2 do
  local field, value = raw[i], raw[i + 1]
  local from = string.match(field, '^b(%d+)$')
  if field == 'audit' then
    audit = {string.match(value, '^(%d+) (%d+) (%d+) (%d+)$')}
  elseif not string.find(value, '^%d+$') then
    anew = true
  elseif field == 'to' then
    to = tonumber(value)
  elseif from then
    parts[#parts + 1] = {from = tonumber(from), bytes = tonumber(value), field = field, was = value}
  end
end
table.sort(parts, function(a, b) return a.from < b.from end)
if anew or not to then anew, to, parts, audit = true, 0, {}, nil end
local was, sum = to, 0
if to > now_us then to = now_us end -- the clock was ahead
for _, part in ipairs(parts) do sum = sum + part.bytes end

-- Jobs that have ended since the last call. Jobs that end from now on have a later time.
local fresh, more, stop = read(to == 0 and '-inf' or whole(to), now_us)
for _, record in ipairs(fresh) do
  local bytes, last = size(record.key), parts[#parts]
  if bytes > 0 then
    if not last or last.bytes >= limit / PARTS and record.at >= last.from + 1 and #parts < MOST_PARTS then
      last = {from = last and math.floor(record.at) or 0, bytes = 0}
      last.field = 'b' .. whole(last.from)
      parts[#parts + 1] = last
    end
    last.bytes, sum = last.bytes + bytes, sum + bytes
  end
end
if #fresh > 0 then to = stop end

-- The oldest: entries whose records are gone, and records beyond the limit.
local oldest, job_keys
local function look(count)
  oldest, job_keys = redis.call('ZRANGE', finished_key, 0, count - 1, 'WITHSCORES'), {}
  for i = 1, #oldest, 2 do job_keys[#job_keys + 1] = key('jobs', oldest[i]) end
  here(finished_key, job_keys)
end
look(sum > limit and page or 1)
if #job_keys == 1 and redis.call('EXISTS', job_keys[1]) == 0 then look(page) end
local drop, places, leaves, first = {}, {}, {}, nil
for i, job_key in ipairs(job_keys) do
  local at_us = tonumber(oldest[2 * i])
  local there = redis.call('EXISTS', job_key) == 1
  if there and (sum <= limit or at_us >= to) then
    first = at_us
    break
  end
  places[#places + 1] = oldest[2 * i - 1]
  leaves[oldest[2 * i - 1]] = true
  if there then
    local bytes, n = size(job_key), 1
    while parts[n + 1] and parts[n + 1].from <= at_us do n = n + 1 end
    parts[n].bytes, sum = math.max(parts[n].bytes - bytes, 0), sum - math.min(parts[n].bytes, bytes)
    if audit and audit[1] == whole(parts[n].from) then -- this part's second count is no longer right
      local next_part = whole((parts[n + 1] or parts[1]).from)
      audit = {next_part, next_part, '0', audit[4]}
    end
    -- A job that has not ended is left alone; an edit can put it into the index. So is a job whose
    -- move from another cell is not settled, or was settled only a moment ago: a late call could
    -- bring it a second time.
    local record = redis.pcall('HMGET', job_key, 'state', 'keep', 'hop')
    if ENDED[record[1]] and not record[2] and not (record[3] and now_us - at_us < MOVE_RETENTION * 1000) then drop[#drop + 1] = job_key end
  end
end
local left = #places > 0 and #places == page
if not first and not left then first = math.huge end -- nothing is left

-- Parts without any record left.
while parts[1] and first and first >= (parts[2] and parts[2].from or to) do
  sum = sum - parts[1].bytes
  if parts[1].was then gone[#gone + 1] = parts[1].field end
  table.remove(parts, 1)
end

local audited = audit and tonumber(audit[4]) or 0
if #parts > 0 and not more and sum <= limit and now - audited >= AUDIT then
  local n, from, bytes = 1, 0, 0
  for i, part in ipairs(parts) do
    if audit and audit[1] == whole(part.from) then n, from, bytes = i, tonumber(audit[2]), tonumber(audit[3]) end
  end
  local records, unread, next_from = read(from == 0 and '-inf' or whole(from), parts[n + 1] and parts[n + 1].from or to)
  for _, record in ipairs(records) do
    if not leaves[record.job] then bytes = bytes + size(record.key) end
  end
  if not unread then
    sum = sum - parts[n].bytes + bytes
    parts[n].bytes = bytes
    n = n % #parts + 1
    next_from, bytes = n > 1 and parts[n].from or 0, 0
  end
  audit = {whole(parts[n].from), whole(next_from), whole(bytes), at}
end

-- No job is named '-': this write needs no memory, as in cancel.lua.
if anew or #places > 0 or to ~= was then redis.call('ZREM', finished_key, '-', unpack(places)) end
if anew then redis.call('DEL', kept_key) end
if #drop > 0 then redis.call('UNLINK', unpack(drop)) end
if #gone > 0 then redis.call('HDEL', kept_key, unpack(gone)) end
local set = {}
if anew or to ~= was then set = {'to', whole(to)} end
if audit and audit[4] == at then set[#set + 1], set[#set + 2] = 'audit', table.concat(audit, ' ') end
for _, part in ipairs(parts) do
  local bytes = whole(part.bytes)
  if bytes ~= part.was then set[#set + 1], set[#set + 2] = part.field, bytes end
end
if #set > 0 and (#parts > 0 or not anew) then redis.call('HSET', kept_key, unpack(set)) end
return {whole(sum), #drop, (more or left or sum > limit) and '1' or '0'}

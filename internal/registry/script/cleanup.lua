-- cleanup: removes instances of a service that have been silent for longer than its limit. It also
-- removes instances without heartbeats that have failed their checks for that long and still fail.
-- It ends overrides, and mends scores in the future.
--
-- Guarantee: one call is let through in each interval. If many instances are due at once, none is
-- removed until the guard has ended, and what a guard has covered is never guarded again. If
-- nothing cleaned up for half a limit (5 s at least), or Redis' clock has jumped by that much,
-- nothing is due for one limit. What an operator registered stays. It works when Redis has no
-- memory left.
--
-- KEYS[1] registry:services                       set
-- KEYS[2] registry:services:<service>:heartbeats  zset    KEYS[3] registry:service:<service>    hash
-- KEYS[4] registry:changes:<service>              zset    KEYS[5] registry:overrides:<service>  hash
-- ARGV[1] service   ARGV[2] stamp, random   ARGV[3] channel of changes   ARGV[4] prefix of the keys of its instances
-- ARGV[5] limit, ms, and ARGV[6] interval, ms, where the record has none   ARGV[7] the most instances to remove
-- The keys of instances are not among KEYS, because it finds them by reading.
-- Returns {removed, more, guard, every}. more is 1 if others, or the ends of overrides, are due; the
--   next call is then let through. guard says why nothing is removed and until when, or is ''. every is
--   the time until the next call, ms.
-- Redis 7.0. Cost: O(removed * log(instances) + overrides), and one command for each instance that does not beat or
--   whose service has at most 1,000.
local services_key, heartbeats_key, record_key, changes_key, overrides_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local service, stamp, change_channel, base = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
-- include lib/clock.lua
-- include lib/fresh.lua
-- include lib/here.lua
-- include lib/publish.lua
-- include lib/change.lua
-- include lib/remove.lua
-- include lib/touch.lua

local record = redis.call('HMGET', record_key, 'cleaned', 'grace', 'guard_until', 'guard_cut', 'guard_why', 'guard_done', 'limit', 'every', 'longest')
local cleaned, grace, guard_until, guard_cut, guard_done = tonumber(record[1]), tonumber(record[2]), tonumber(record[3]), tonumber(record[4]), tonumber(record[6])
-- An instance may miss two of its heartbeats, however long its interval is.
local guard_why, limit = record[5] or '', math.max(tonumber(record[7]) or tonumber(ARGV[5]), 3 * (tonumber(record[9]) or 0))
local every = math.min(tonumber(record[8]) or tonumber(ARGV[6]), math.floor(limit / 4))
if cleaned and now >= cleaned and now - cleaned < every then return {0, 0, guard_why, every} end
local size = redis.call('ZCARD', heartbeats_key)
if size == 0 then
  redis.call('SREM', services_key, service)
  return {0, 0, '', every}
end

redis.call('HDEL', record_key, '') -- Redis accepts what follows a write that needs no memory
-- Callers call at least once per `every`, or once a second if `every` is shorter.
if not cleaned or math.abs(now - cleaned) > math.max(limit / 2, 5000) then grace = now + limit end
grace = grace and grace > now and math.min(grace, now + limit) or nil
local ahead = redis.call('ZRANGEBYSCORE', heartbeats_key, '(' .. at, '(+inf', 'LIMIT', 0, 1000)
for _, id in ipairs(ahead) do redis.call('ZADD', heartbeats_key, at, id) end

-- Instances without heartbeats have no score to be found by. If there are more than 1,000, each
-- call looks at some.
local failing, lasting = {}, redis.call('ZCOUNT', heartbeats_key, '+inf', '+inf')
if lasting > 0 then
  local from = lasting > 1000 and now % (lasting - 999) or 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', heartbeats_key, '+inf', '+inf', 'LIMIT', from, 1000)) do
    local checked = redis.pcall('HMGET', base .. id, 'checked', 'failing_since', 'check', 'checked_at', 'epoch')
    if checked[1] == 'failing' and checked[3] and tonumber(checked[2]) and fresh(checked[4]) and checked[5] ~= 'operator' then
      failing[#failing + 1] = {id = id, since = tonumber(checked[2])}
    end
  end
end

-- Instances that fall silent together are due within one interval. So the guard counts instances
-- that have been silent for three quarters of the limit: otherwise a cleanup in between would
-- remove the first.
local cut, near = now - limit, now - math.floor(limit * 3 / 4)
if guard_done and guard_done > now then guard_done = nil end
local function silent(done, since)
  local count = redis.call('ZCOUNT', heartbeats_key, done and '(' .. done or '-inf', since)
  for _, item in ipairs(failing) do
    if item.since <= since and (not done or item.since > done) then count = count + 1 end
  end
  return count
end
local function many(count) return count > 1 and count * 100 > 30 * size end

local count = silent(guard_done, near)
-- A guard that seems to last longer than that is not over: the clock went back, or the limit is
-- smaller now.
if guard_until and guard_until > now + 2 * limit then
  guard_until = now + 2 * limit
  guard_why = string.gsub(guard_why, 'before %d+', string.format('before %.0f', guard_until))
end
if guard_until and (now >= guard_until or not many(count)) then
  guard_done, guard_until, guard_cut, guard_why = guard_cut, nil, nil, ''
  count = silent(guard_done, near)
end
local removable = cut -- silent since then or longer
if not guard_until and not grace and many(count) and silent(guard_done, cut) > 0 then
  local newest = redis.call('ZREVRANGEBYSCORE', heartbeats_key, near, '-inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  guard_cut, guard_until = tonumber(newest) or 0, now + 2 * limit
  for _, item in ipairs(failing) do
    if item.since <= near then guard_cut = math.max(guard_cut, item.since) end
  end
  guard_why = string.format('%d of %d instances fell silent or failed their checks together: none of them is removed before %.0f (ms since 1970)',
    count, size, guard_until)
end
if guard_until then removable = math.min(cut, guard_done or -1) end
if grace then removable = -1 end

local most = tonumber(ARGV[7])
local ids = redis.call('ZRANGEBYSCORE', heartbeats_key, '-inf', removable, 'LIMIT', 0, most)
local failed = {}
for _, item in ipairs(failing) do
  if item.since <= removable and #ids + #failed < most then failed[#failed + 1] = item.id end
end
local removed = #ids + #failed
local more = removed == most

local set, gone = {'cleaned', string.format('%.0f', more and now - every or now)}, {}
local function keep(name, value)
  if value and value ~= '' then
    set[#set + 1] = name
    set[#set + 1] = type(value) == 'number' and string.format('%.0f', value) or value
  else
    gone[#gone + 1] = name
  end
end
keep('grace', grace)
keep('guard_until', guard_until)
keep('guard_cut', guard_cut)
keep('guard_why', guard_why)
keep('guard_done', guard_done)

for _, group in ipairs({{ids, 'expired'}, {failed, 'checks_failed'}}) do
  local keys = {}
  for i, id in ipairs(group[1]) do keys[i] = base .. id end
  if #keys > 0 then
    here(heartbeats_key, keys)
    remove(group[1], keys, group[2], group[2] == 'expired' and 'expired' or 'removed')
  end
end
if redis.call('ZCARD', heartbeats_key) == 0 then return {removed, 0, '', every} end

-- An event has the instances as a whole, so a call ends only 20 overrides. The next call ends the
-- next ones.
local ended, keys, overrides = {}, {}, redis.call('HGETALL', overrides_key)
for i = 1, #overrides, 2 do
  local ok, override = pcall(cjson.decode, overrides[i + 1])
  if ok and type(override) == 'table' and #ended < 20 then
    local over = (tonumber(override.until_ms) or 0) > 0 and override.until_ms <= now
    if over or (tonumber(override.gone_ms) or 0) > 0 and override.gone_ms <= now - 604800000 then
      redis.call('HDEL', overrides_key, overrides[i])
      if over then ended[#ended + 1], keys[#keys + 1] = overrides[i], base .. overrides[i] end
    end
  end
end
if #ended > 0 then touch(ended, keys, 'override') end
if #ended == 20 and not more then
  more, set[2] = true, string.format('%.0f', now - every)
end

if not more and redis.call('ZCARD', heartbeats_key) <= 1000 then
  local longest = 0
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', heartbeats_key, '-inf', '(+inf')) do
    longest = math.max(longest, tonumber(redis.pcall('HGET', base .. id, 'interval')) or 0)
  end
  keep('longest', longest)
end
if #gone > 0 then redis.call('HDEL', record_key, unpack(gone)) end
redis.call('HSET', record_key, unpack(set))
return {removed, more and 1 or 0, guard_why, every}

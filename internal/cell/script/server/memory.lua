-- memory: reads how much of its memory this cell's server uses, how many jobs have ended since the
-- reading before, and how many attempts were retried at all. It is a script, because on a cluster only a key selects the server.
--
-- Guarantee: read-only.
--
-- KEYS[1] version:nodes  hash: only names the server
-- KEYS[2] finished, KEYS[3..6] ended:dead, failed, cancelled, expired  zsets: job -> when it ended, us; a
--   dead job is in ended:dead alone, any other in finished, too
-- KEYS[7] ended          hash: retries = attempts that were retried
-- ARGV[1] when the reading before was, us, by the server's clock; '0' counts no jobs
-- Returns {used, limit, run, now, role, retries, succeeded, dead, failed, cancelled, expired}: bytes as
--   text, limit '0' if there is none; the id of the server's run; when, us; master or slave; retries as
--   text; jobs that ended by state. What the server does not tell is ''
-- Redis 7.0. Cost: O(log(ended jobs)), about 20 us.
local since = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local ends = {0, 0, 0, 0, 0} -- succeeded, and by the keys
if since ~= '0' then
  for i = 1, 5 do
    local count = redis.pcall('ZCOUNT', KEYS[1 + i], '(' .. since, string.format('%.0f', now))
    ends[i] = type(count) == 'number' and count or 0 -- a key of another type has none
  end
  ends[1] = math.max(ends[1] - ends[3] - ends[4] - ends[5], 0)
end
local retries = redis.pcall('HGET', KEYS[7], 'retries')
retries = type(retries) == 'string' and string.match(retries, '^%d+$') or '0'
local ok, info = pcall(redis.call, 'INFO', 'memory', 'server', 'replication')
if not ok or type(info) ~= 'string' then info = '' end
local function told(name) return string.match(info, '[\r\n]' .. name .. ':(%w+)') or '' end
return {told('used_memory'), told('maxmemory'), told('run_id'), string.format('%.0f', now), told('role'), retries, unpack(ends)}

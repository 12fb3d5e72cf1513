-- complete_plain: ends the attempts of a completion as end_job and index_finished do, if nothing else has to
-- be done and no job waits. It has no functions: in a large fleet a call brings one job or two, and
-- preparing all other cases would cost half as much again. An argument that is a number costs a
-- command twice as much as a text. The first write frees memory.
-- Needs: at, before, call, channel, clock, epoch, finished_key, items, jobs, node, now_us, prefix,
--   profile_key, records, revisions_key, slots_key, tag, try, used, version_key
-- Defines: RETENTION, ends, failed, finished, kept, longest, max, news, profile, reply, sum, told
-- include lib/retention.lua
local profile = call('HMGET', profile_key, 'status', 'max_concurrency')
local max = tonumber(profile[2]) or 0
local sum, finished = used .. '', items
call('HDEL', slots_key, unpack(jobs))
call('HSET', slots_key, 'sum', sum)
local reply, ends = {used, 1}, {#clock[2] == 6 and clock[1] .. clock[2] or now_us, jobs[1]}
local news = {} -- replica -> the fields of its entry
local longest, kept, failed = RETENTION, RETENTION .. '', nil -- failed: times and jobs, as ended in lib/end_job.lua
local told = ' ' .. at .. ' ' .. sum .. ' 0'
for n = 1, items do
  local item, job, job_key, record = 6 * n - 1, jobs[n], KEYS[6 + n], records[n]
  local state, result, failure, reply_to = ARGV[item + 2], ARGV[item + 3], ARGV[item + 4], record[2]
  -- include lib/end_plain_job.lua
  if n > 1 then ends[2 * n - 1], ends[2 * n], reply[n + 1] = now_us + n - 1, job, 1 end
end
for reply_to, entry in pairs(news) do
  try('XADD', prefix .. ':replies' .. tag .. ':' .. reply_to, 'NOMKSTREAM', '*', unpack(entry))
end
call('ZADD', finished_key, unpack(ends))
if failed then try('ZADD', prefix .. ':ended' .. tag .. ':failed', unpack(failed)) end -- protected as in lib/end_job.lua
-- include lib/forget_old.lua
if (used < max) ~= (before < max) then
  -- include lib/announce.lua
  announce(used < max and 'e' or 'f', node, epoch, profile[1], max, used, '')
end

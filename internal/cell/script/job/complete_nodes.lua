-- complete_nodes: ends attempts of several nodes in one call, as complete.lua does for one. It
-- takes only what lib/complete_plain.lua takes: first attempts that end for good, while no job waits that
-- the node serves.
--
-- Guarantee: as complete.lua. If one item of a node is not such an attempt, or a key of the node or
-- of its jobs has another type, nothing of this node is changed, and complete.lua must end all its
-- items. Other nodes are not affected. The first write frees memory.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] finished  zset
-- Then two more for each node; for the first node they are
-- KEYS[4] nodes:<node>    hash   KEYS[5] slots:<node>   hash
-- and after them one for each item
-- KEYS[6] jobs:<job>      hash
-- ARGV[1] channel   ARGV[2] number of nodes, 1 to 32, each with another id
-- ARGV[3..] for each node: node, epoch, number of its items, and for each item: job, attempt, state,
--   result (JSON or ''), failure (JSON or ''); results and failures of at most 64 KiB
-- Returns a code for each item: 1 completed, -1 not carried out
-- Foreign keys (replies, due, waiting, serves) are of this cell. complete.lua says why they are not
-- in KEYS.
-- Redis 7.0. Cost: O(items). Three commands for each job, four for each node, one for each replica,
-- and three for the call.
local KEYS, ARGV, call, try = KEYS, ARGV, redis.call, redis.pcall -- a global is looked up by its name each time
local revisions_key, version_key, finished_key, channel, nodes = KEYS[1], KEYS[2], KEYS[3], ARGV[1], tonumber(ARGV[2])
-- include lib/clock.lua
-- include lib/inline.lua
-- include lib/retention.lua
local prefix, tag = string.match(revisions_key, '^([^:]+):index:revision(.*)$')
local waiting_key, counted, with_limits = prefix .. ':waiting' .. tag, true, nil
local codes, taken, waits = {}, {}, nil
local first, job_keys = 3, 3 + 2 * nodes -- before the next node's arguments, and before its jobs' keys
for n = 1, nodes do
  local node, epoch, items = ARGV[first], ARGV[first + 1], tonumber(ARGV[first + 2])
  local profile_key, slots_key, argument = KEYS[2 * n + 2], KEYS[2 * n + 3], first - 2 -- item i begins at argument + 5 * i
  local freed, records, ended = {}, {}, {}
  for i = 1, items do freed[i] = ARGV[argument + 5 * i] end
  local owned, usual = try('HMGET', slots_key, 'sum', unpack(freed)), '1:' .. epoch .. ':1'
  local profile = try('HMGET', profile_key, 'status', 'max_concurrency')
  local before = not owned.err and not profile.err and string.match(owned[1] or '', '^%d+$')
  local used, plain = before, before
  for i = 1, items do
    if not plain then break end
    local job, item, owner, slots = freed[i], argument + 5 * i, epoch, 1
    if owned[i + 1] ~= usual then owner, slots = string.match(owned[i + 1] or '', '^1:([^:]*):(%d+)') end
    plain = owner == epoch and ARGV[item + 1] == '1' and not ended[job]
    if plain then
      local state, result, failure = ARGV[item + 2], ARGV[item + 3], ARGV[item + 4]
      local record = try('HMGET', KEYS[job_keys + i], 'state', 'reply_to', 'job', 'gates', 'idem')
      plain = record[1] == 'running' and not record[4] and
        (state == 'succeeded' and failure == '' or state == 'failed' and result == '')
      ended[job], records[i], used = true, record, used - slots
    end
  end
  if plain and not waits then waits = try('EXISTS', slots_key, waiting_key) end
  if plain and waits ~= 1 then -- a job waits somewhere, or that is not known
    -- include lib/served.lua
    plain = #open == 0 and tonumber(waiting)
  end
  if plain then taken[#taken + 1] = {node, epoch, profile_key, slots_key, freed, records, argument, job_keys, before, used, profile} end
  local code = plain and 1 or -1
  for _ = 1, items do codes[#codes + 1] = code end
  first, job_keys = first + 3 + 5 * items, job_keys + items
end
if #taken == 0 then return codes end

local news, sizes, ends, turned = {}, {}, {}, {} -- news: replica -> the fields of its entry
local longest, kept, finished, failed = RETENTION, RETENTION .. '', 0, nil -- failed: as in lib/complete_plain.lua
for _, one in ipairs(taken) do
  local node, _, _, slots_key, freed, records, argument, keys, before, used, profile = unpack(one)
  local sum = used .. ''
  call('HDEL', slots_key, unpack(freed))
  call('HSET', slots_key, 'sum', sum)
  local told = ' ' .. at .. ' ' .. sum .. ' 0'
  for i, job in ipairs(freed) do
    local item, job_key, record = argument + 5 * i, KEYS[keys + i], records[i]
    local state, result, failure, reply_to = ARGV[item + 2], ARGV[item + 3], ARGV[item + 4], record[2]
    -- include lib/end_plain_job.lua
    ends[2 * finished + 1], ends[2 * finished + 2] = now_us + finished, job
    finished = finished + 1
    if reply_to and reply_to ~= '' then
      local size = (sizes[reply_to] or 0) + #result + #failure
      if size >= ENTRY_BYTES then
        try('XADD', prefix .. ':replies' .. tag .. ':' .. reply_to, 'NOMKSTREAM', '*', unpack(news[reply_to]))
        size, news[reply_to] = 0, nil
      end
      sizes[reply_to] = size
    end
  end
  local max = tonumber(profile[2]) or 0
  if (used < max) ~= (tonumber(before) < max) then turned[#turned + 1] = one end
end
for reply_to, entry in pairs(news) do
  try('XADD', prefix .. ':replies' .. tag .. ':' .. reply_to, 'NOMKSTREAM', '*', unpack(entry))
end
call('ZADD', finished_key, unpack(ends))
if failed then try('ZADD', prefix .. ':ended' .. tag .. ':failed', unpack(failed)) end -- protected as in lib/end_job.lua
-- include lib/forget_old.lua
if #turned > 0 then
  -- include lib/announce.lua
  for _, one in ipairs(turned) do
    local max, used = tonumber(one[11][2]) or 0, one[10]
    announce(used < max and 'e' or 'f', one[1], one[2], one[11][1], max, used, '')
  end
end
return codes

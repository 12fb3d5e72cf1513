-- submit: creates jobs, each with its slot and its delivery, or leaves no trace.
--
-- Guarantee: a job gets the first of its candidates that has enough free slots. Never more than
-- max_concurrency slots are in use on a node. Record, slot and dispatch entry are created together.
-- Idempotent by job id: a repeated item reports where the job is and changes nothing. All items are
-- validated before the first write. No job passes a waiting job of its class.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] due  zset
-- KEYS[4..3+4n]  for each of n nodes, each once: nodes:<node> hash, slots:<node> hash,
--   dispatch:<node> stream, load:<node> string
-- then jobs:<job>  hash, one an item, and waiting:<class>  zset, one for each of k kinds
-- ARGV[1] channel   ARGV[2] heartbeat limit, ms   ARGV[3] retention, ms: kept in the record, because
--   agents do not know it
-- ARGV[4] n   ARGV[5] k
-- ARGV[6..5+8k]  for each kind, what items have in common: tenant, slots, reply-to ('' for none),
--   timeout (ms, '' for none), class, priority, attempts that it may have, definition of the class
-- ARGV[6+8k..]   for each item: its kind (from 1), spec (JSON), its candidates (nodes from 1), ''
-- Returns {now, what, more, ...}, two values an item:
--   node, used                             assigned by its first candidate, attempt 1
--   0, {1, node, used, refusals}           assigned by another
--   0, {2, node id, attempt, assigned_at_ms}  was there already
--   0, {3}                                 jobs of its class wait
--   0, {4, position}                       was there already and waits, from 1; 0: is due later
--   0, {0, refusals}                       refused by all
--   Refusals, of the candidates before, are four values each: node, reason (f full, g gone, d
--   draining, s silent), used, max
-- Foreign keys (streams of gateways) come from load:<node>: see lib/deliver.lua.
-- Redis 7.0. Cost: O(items + nodes looked at). One command for each job, four for each node, five
-- for the call, and one for each 64 KiB of specs. Nodes behind one gateway share an entry.
local KEYS, ARGV = KEYS, ARGV -- a global is looked up by its name each time
local revisions_key, version_key, due_key, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local limit, retention, node_count, kind_count = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local before_jobs = 3 + 4 * node_count
local item_count = #KEYS - before_jobs - kind_count
local before_queues = before_jobs + item_count
-- Where ids begin in keys. Each key differs from the first one by the name of its kind.
local node_from = #revisions_key - #':index:revision' + #':nodes:' + 1
local job_from = #revisions_key - #':index:revision' + #':jobs:' + 1
local call, try, sub = redis.call, redis.pcall, string.sub
-- include lib/clock.lua
-- include lib/announce.lua
-- include lib/inline.lua
-- include lib/record.lua

local tenants, statics, counts, amounts, replicas, deadlines = {}, {}, {}, {}, {}, {} -- by kind
for k = 1, kind_count do
  local first = 8 * k - 2
  local tenant, slots, reply_to, timeout, class, priority, attempts, definition = unpack(ARGV, first, first + 7)
  if timeout ~= '' then deadlines[k] = string.format('%.0f', now + timeout) end
  tenants[k], counts[k], amounts[k], replicas[k] = tenant, slots, tonumber(slots), reply_to
  statics[k] = write_job(tenant, slots, at, retention, class, priority, attempts, deadlines[k] or '0', definition)
end
-- Where each item begins, and each item's first candidate: most jobs need no other.
local kinds, items, first_nodes, first_loads, at_item = {}, {}, {}, {}, 6 + 8 * kind_count
local number_of = {} -- text -> number: each text is converted once
for i = 1, item_count do
  local kind, candidate = number_of[ARGV[at_item]] or tonumber(ARGV[at_item] or ''), at_item + 2
  local slots = amounts[kind]
  if not slots or slots < 1 or slots % 1 ~= 0 or ARGV[candidate] == '' then
    return redis.error_reply('ERR submit: item ' .. i .. ' is malformed')
  end
  number_of[ARGV[at_item]], kinds[i], items[i] = kind, kind, at_item
  while ARGV[candidate] ~= '' do
    local text = ARGV[candidate] or ''
    local index = number_of[text] or tonumber(text)
    if not index or index < 1 or index > node_count then
      return redis.error_reply('ERR submit: item ' .. i .. ' names node ' .. text .. ' of ' .. node_count)
    end
    number_of[text] = index
    candidate = candidate + 1
  end
  local first = number_of[ARGV[at_item + 2]]
  if not first_nodes[first] then
    local n = #first_loads + 1
    first_nodes[first], first_loads[n] = n, KEYS[3 + 4 * first]
  end
  at_item = candidate + 1
end

local known = {} -- existing jobs: key -> the answer, or the index of the node that this call chose
if call('EXISTS', unpack(KEYS, before_jobs + 1, before_queues)) > 0 then
  for i = 1, item_count do
    local record = call('HMGET', KEYS[before_jobs + i], 'state', 'run')
    if record[1] == 'waiting' or record[1] == 'retry_wait' or record[1] == 'scheduled' then
      local rank = call('ZRANK', KEYS[before_queues + kinds[i]], sub(KEYS[before_jobs + i], job_from))
      known[KEYS[before_jobs + i]] = {4, rank and rank + 1 or 0}
    elseif record[1] then
      -- The defaults are for a field of another form: a nil would cut the answer short.
      local attempt, node, assigned = string.match(record[2] or '', '^(%d+) (%S+) %S+ (%d+)$')
      known[KEYS[before_jobs + i]] = {2, node or '', tonumber(attempt) or 0, tonumber(assigned) or 0}
    end
  end
end

local behind = {} -- kinds with jobs that wait
if kind_count > 0 and call('EXISTS', unpack(KEYS, before_queues + 1)) > 0 then
  for k = 1, kind_count do behind[k] = call('EXISTS', KEYS[before_queues + k]) == 1 and {3} or nil end
end

-- MGET skips a key of another type: one node's keys must not make the jobs of others fail.
local seen = #first_loads > 0 and call('MGET', unpack(first_loads)) or {}
-- The time of the last heartbeat has 13 digits, so comparing it as text is right, and cheaper.
local oldest, newest = now - limit .. '', at .. '~'
local numbers = {} -- the same few values come often: each is converted once
-- By index: {epoch, status, max_concurrency, used}. A table of four costs least. A node behind a
-- gateway has two more: the key of its stream, and the end of a delivery's head.
local nodes = {}
local owned, entries = {}, {} -- by index: what to add to the slots hash, and to the stream in one entry
local shared, gateways -- entries by the keys of gateways' streams; the beginning of these keys (nil: no gateways)
local due = {} -- deadlines and their jobs
local refused, full = {}, {} -- by index: why a node gets nothing; nodes that became full, in this order
local replies, n = {now}, 2
-- One loop, because functions would cost a twentieth more for each job.
for i = 1, item_count do
  local item, job_key = items[i], KEYS[before_jobs + i]
  local kind, what, more, refusals = kinds[i], 0, known[job_key], nil
  if type(more) == 'number' then -- an earlier item of the same job: its node
    more = {2, sub(KEYS[4 * more], node_from), 1, now}
  elseif not more and behind[kind] then
    more = behind[kind]
  elseif not more then
    local slots, c = amounts[kind], item + 2
    while ARGV[c] ~= '' do
      local index = number_of[ARGV[c]]
      local first, node = 4 * index, nodes[index]
      if not node then
        local heard
        if first_nodes[index] then heard = seen[first_nodes[index]] else heard = call('MGET', KEYS[first + 3])[1] end
        -- Protected for the same reason. Without a heartbeat, the time of the registration counts.
        node = heard and try('HMGET', KEYS[first], 'epoch', 'status', 'max_concurrency') or
          try('HMGET', KEYS[first], 'epoch', 'status', 'max_concurrency', 'registered_at_ms')
        local sum = try('HGET', KEYS[first + 1], 'sum')
        local used, max = numbers[sum], numbers[node[3]]
        if not used or not max then
          if node.err or type(sum) == 'table' then
            node, sum = {false, false, false}, false
          end
          -- A node whose sum or maximum is not a number counts as full, until its next heartbeat
          -- counts the slots again or a registration corrects the maximum.
          used, max = 0, 0
          if sum then used = string.find(sum, '^%d%d?%d?%d?%d?$') and tonumber(sum) or 99999 end
          if node[3] and string.find(node[3], '^%d%d?%d?%d?%d?$') then max = tonumber(node[3]) end
          numbers[sum], numbers[node[3]] = used, max
        end
        if heard and #heard > 13 then
          local stream, session = string.match(heard, '^%d+ %d+ (%S+) (%S+)')
          if stream and stream ~= '-' then
            if not shared then
              local prefix, tag = string.match(revisions_key, '^([^:]+):index:revision(.*)$')
              shared, gateways = {}, prefix .. ':gateway' .. tag .. ':'
            end
            node[5], node[6] = gateways .. stream, ' ' .. sub(KEYS[first], node_from) .. ' ' .. session
          end
        end
        heard = heard or node[4]
        if not node[1] then
          refused[index], used, max = 'g', 0, 0
        elseif node[2] ~= 'online' then
          refused[index], node[2] = 'd', node[2] or 'offline'
        elseif not heard or heard < oldest or heard > newest or not string.find(heard, '^%d%d%d%d%d%d%d%d%d%d%d%d%d') then
          -- Written so that nan and inf count as no time.
          local beat = heard and tonumber(sub(heard, 1, 13))
          if not beat or not (now - beat <= limit and beat < 1e13) then refused[index] = 's' end
        end
        nodes[index], node[3], node[4] = node, max, used
      end
      local refusal, used = refused[index], node[4] + slots
      if not refusal and used > node[3] then refusal = 'f' end
      if not refusal then
        local job, spec, tenant, reply_to, epoch = sub(job_key, job_from), ARGV[item + 1], tenants[kind], replicas[kind], node[1]
        local run = '1 ' .. sub(KEYS[first], node_from) .. ' ' .. epoch .. ' ' .. at
        if reply_to == '' then
          call('HSET', job_key, 'state', 'running', 'job', statics[kind], 'run', run, 'spec', spec)
        else
          call('HSET', job_key, 'state', 'running', 'job', statics[kind], 'run', run, 'reply_to', reply_to, 'spec', spec)
        end
        if #spec > INLINE_SPEC then spec = '' end
        local own, stream = owned[index], node[5]
        if not own then
          own = {}
          owned[index] = own
          if not stream then entries[index] = {} elseif not shared[stream] then shared[stream] = {} end
        end
        local entry, k = stream and shared[stream] or entries[index], #own
        own[k + 1], own[k + 2] = job, '1:' .. epoch .. ':' .. counts[kind]
        k = #entry
        entry[k + 1], entry[k + 2], entry[k + 3], entry[k + 4] = 'j', job .. ' 1 ' .. tenant .. (node[6] or ''), 's', spec
        entry.bytes = (entry.bytes or 0) + #spec
        if entry.bytes >= ENTRY_BYTES then
          if stream then
            try('XADD', stream, 'NOMKSTREAM', '*', unpack(entry))
            shared[stream] = {}
          else
            try('XADD', KEYS[first + 2], '*', unpack(entry))
            entries[index] = {}
          end
        end
        if deadlines[kind] then due[#due + 1], due[#due + 2] = deadlines[kind], job end
        node[4], known[job_key] = used, index
        if used >= node[3] then full[#full + 1] = index end
        if refusals then
          more = {1, index, used, unpack(refusals, 2)}
        else
          what, more = index, used
        end
        break
      end
      refusals = refusals or {0}
      local k = #refusals
      refusals[k + 1], refusals[k + 2], refusals[k + 3], refusals[k + 4] = index, refusal, node[4], node[3]
      c = c + 1
    end
    more = more or refusals
  end
  replies[n], replies[n + 1] = what, more
  n = n + 2
end
for index, own in pairs(owned) do
  call('HSET', KEYS[4 * index + 1], 'sum', nodes[index][4], unpack(own))
  -- Protected: streams only deliver. The next heartbeat names what is missing.
  local entry = entries[index]
  if entry and entry[1] then try('XADD', KEYS[4 * index + 2], '*', unpack(entry)) end
end
if shared then -- a gateway that is gone has no stream, and gets none
  for stream, entry in pairs(shared) do
    if entry[1] then try('XADD', stream, 'NOMKSTREAM', '*', unpack(entry)) end
  end
end
if due[1] then
  -- include lib/sure.lua
  sure('ZADD', due_key, unpack(due))
end
for i = 1, #full do
  local index = full[i]
  local node = nodes[index]
  announce('f', sub(KEYS[4 * index], node_from), node[1], node[2], node[3], node[4], '')
end
return replies

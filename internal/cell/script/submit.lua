-- submit: creates jobs, each with its slot and its delivery, or leaves no trace.
--
-- Guarantee: a job gets the first of its candidates that has enough free slots,
-- never more than max_concurrency are in use on a node, and record, slot and
-- dispatch entry come into being together. Idempotent by job id: a repeated item
-- reports where the job is and changes nothing. All items are validated before
-- the first write.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash   KEYS[3] index:heartbeats  zset
-- KEYS[4..3+3n]  for each of n nodes: nodes:<node> hash, slots:<node> hash, dispatch:<node> stream
-- KEYS[4+3n..]   jobs:<job>  hash, one an item
-- ARGV[1] channel   ARGV[2] heartbeat limit, ms   ARGV[3] n, number of nodes
-- ARGV[4] number of items   ARGV[5] largest spec put on the stream, bytes
-- ARGV[6] retention, ms: kept in the record for whoever ends the job, as agents are not told it
-- ARGV[7..6+n]  node ids
-- then for each item: job, tenant, service, slots, reply-to ('' for none), spec (JSON), candidates c, c node indexes from 1
-- Returns one array an item:
--   {1, node index, now, used, ...}                  assigned, attempt 1; ... are the refusals of the candidates before
--   {2, node, attempt, assigned_at_ms}               was there already
--   {0, node index, reason, used, max, ...}          refused by all, four values each: f full, g gone, d draining, s silent
-- Redis 7.0. Cost: O(items + nodes looked at); five commands a job, four calls and two more for each node that all share.
local revisions_key, version_key, heartbeats_key = KEYS[1], KEYS[2], KEYS[3]
local channel, limit, node_count, item_count, inline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local retention = ARGV[6]
-- include lib/clock.lua
-- include lib/announce.lua

-- Where each item begins, and the nodes that are asked first: most jobs need no other.
local items, first_nodes, first_ids, at_arg = {}, {}, {}, 7 + node_count
for i = 1, item_count do
  local slots, candidates = tonumber(ARGV[at_arg + 3]), tonumber(ARGV[at_arg + 6])
  if not slots or slots < 1 or slots % 1 ~= 0 or not candidates then
    return redis.error_reply('ERR submit: item ' .. i .. ' is malformed')
  end
  for c = at_arg + 7, at_arg + 6 + candidates do
    local index = tonumber(ARGV[c])
    if not index or index < 1 or index > node_count then
      return redis.error_reply('ERR submit: item ' .. i .. ' names node ' .. tostring(index) .. ' of ' .. node_count)
    end
    if c == at_arg + 7 and not first_nodes[index] then
      first_ids[#first_ids + 1] = ARGV[6 + index]
      first_nodes[index] = #first_ids
    end
  end
  items[i] = at_arg
  at_arg = at_arg + 7 + candidates
end

local known = {} -- jobs that are there: by id the answer, or the node that this call gave it to
if redis.call('EXISTS', unpack(KEYS, 4 + 3 * node_count)) > 0 then
  for i = 1, item_count do
    local record = redis.call('HMGET', KEYS[3 + 3 * node_count + i], 'state', 'run')
    if record[1] then
      -- The defaults are for a record that was edited: a nil would cut the answer short.
      local attempt, node, assigned = string.match(record[2] or '', '^(%d+) (%S+) %S+ (%d+)$')
      known[ARGV[items[i]]] = {2, node or '', tonumber(attempt) or 0, tonumber(assigned) or 0}
    end
  end
end

local seen = #first_ids > 0 and redis.call('ZMSCORE', heartbeats_key, unpack(first_ids)) or {}
local nodes, taken, full = {}, {}, {} -- full: those that became so, in this order
local function node_at(index)
  local first = 1 + 3 * index
  local node = {id = ARGV[6 + index], slots_key = KEYS[first + 1], dispatch_key = KEYS[first + 2], used = 0, max = 0}
  nodes[index] = node
  -- Protected: what is wrong with one node's keys must not fail the jobs of others.
  local profile = redis.pcall('HMGET', KEYS[first], 'epoch', 'status', 'max_concurrency')
  local sum = redis.pcall('HGET', node.slots_key, 'sum')
  if profile.err or not profile[1] or type(sum) == 'table' then
    node.refusal = 'g'
    return node
  end
  node.epoch, node.status, node.max = profile[1], profile[2] or 'offline', tonumber(profile[3]) or 0
  node.used = tonumber(sum) or 0
  if node.status ~= 'online' then
    node.refusal = 'd'
    return node
  end
  local beat
  if first_nodes[index] then beat = seen[first_nodes[index]] else beat = redis.call('ZSCORE', heartbeats_key, node.id) end
  if now - (tonumber(beat) or 0) > limit then node.refusal = 's' end
  return node
end

local function assign(item, job_key, node, slots)
  local job, tenant, count, reply_to, spec = ARGV[item], ARGV[item + 1], ARGV[item + 3], ARGV[item + 4], ARGV[item + 5]
  local static = tenant .. ' ' .. count .. ' ' .. at .. ' ' .. retention .. ' ' .. ARGV[item + 2]
  local run = '1 ' .. node.id .. ' ' .. node.epoch .. ' ' .. at
  if reply_to == '' then
    redis.call('HSET', job_key, 'state', 'running', 'job', static, 'run', run, 'spec', spec)
  else
    redis.call('HSET', job_key, 'state', 'running', 'job', static, 'run', run, 'reply_to', reply_to, 'spec', spec)
  end
  if #spec > inline then spec = '' end
  -- Protected: the stream only delivers, the next heartbeat would mend it.
  redis.pcall('XADD', node.dispatch_key, '*', 'j', job .. ' 1 ' .. tenant, 's', spec)
  node.used = node.used + slots
  if node.used >= node.max then full[#full + 1] = node end
  local owned = node.owned
  if not owned then
    owned = {}
    node.owned = owned
    taken[#taken + 1] = node
  end
  owned[#owned + 1] = job
  owned[#owned + 1] = '1:' .. node.epoch .. ':' .. count
end

local replies = {}
for i = 1, item_count do
  local item = items[i]
  local job, slots = ARGV[item], tonumber(ARGV[item + 3])
  local reply, refusals = known[job], nil
  if reply and not reply[1] then reply = {2, reply.id, 1, now} end -- an item before, of the same job: its node
  if not reply then
    for c = item + 7, item + 6 + ARGV[item + 6] do
      local index = tonumber(ARGV[c])
      local node = nodes[index] or node_at(index)
      local refusal = node.refusal
      if not refusal and node.used + slots > node.max then refusal = 'f' end
      if not refusal then
        assign(item, KEYS[3 + 3 * node_count + i], node, slots)
        reply = {1, index, now, node.used}
        known[job] = node
        if refusals then
          for k = 2, #refusals do reply[k + 3] = refusals[k] end
        end
        break
      end
      refusals = refusals or {0}
      local n = #refusals
      refusals[n + 1], refusals[n + 2], refusals[n + 3], refusals[n + 4] = index, refusal, node.used, node.max
    end
    reply = reply or refusals or {0}
  end
  replies[i] = reply
end
for i = 1, #taken do
  local node = taken[i]
  redis.call('HSET', node.slots_key, 'sum', node.used, unpack(node.owned))
end
for i = 1, #full do
  local node = full[i]
  announce('f', node.id, node.epoch, node.status, node.max, node.used, '')
end
return replies

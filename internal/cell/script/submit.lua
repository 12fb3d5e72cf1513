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
-- Redis 7.0. Cost: O(items + nodes looked at).
local revisions_key, version_key, heartbeats_key = KEYS[1], KEYS[2], KEYS[3]
local channel, limit, node_count, item_count, inline = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local retention = ARGV[6]
-- include lib/clock.lua
-- include lib/announce.lua

local items, at = {}, 7 + node_count
for i = 1, item_count do
  local item = {job = ARGV[at], tenant = ARGV[at + 1], service = ARGV[at + 2], slots = tonumber(ARGV[at + 3]),
    reply_to = ARGV[at + 4], spec = ARGV[at + 5], candidates = {}}
  local candidates = tonumber(ARGV[at + 6])
  if not item.slots or item.slots < 1 or item.slots % 1 ~= 0 or not candidates then
    return redis.error_reply('ERR submit: item ' .. i .. ' is malformed')
  end
  for c = 1, candidates do
    local index = tonumber(ARGV[at + 6 + c])
    if not index or index < 1 or index > node_count then
      return redis.error_reply('ERR submit: item ' .. i .. ' names node ' .. tostring(index) .. ' of ' .. node_count)
    end
    item.candidates[c] = index
  end
  items[i] = item
  at = at + 7 + candidates
end

local nodes = {}
local function node_at(index)
  local node = nodes[index]
  if node then return node end
  local first = 1 + 3 * index
  node = {id = ARGV[6 + index], slots_key = KEYS[first + 1], dispatch_key = KEYS[first + 2], used = 0, max = 0}
  -- Protected: what is wrong with one node's keys must not fail the jobs of others.
  local profile = redis.pcall('HMGET', KEYS[first], 'epoch', 'status', 'max_concurrency')
  local sum = redis.pcall('HGET', node.slots_key, 'sum')
  if profile.err or not profile[1] or type(sum) == 'table' then
    node.refusal = 'g'
  else
    node.epoch, node.status, node.max = profile[1], profile[2] or 'offline', tonumber(profile[3]) or 0
    node.used = tonumber(sum) or 0
    local seen = tonumber(redis.call('ZSCORE', heartbeats_key, node.id)) or 0
    if node.status ~= 'online' then
      node.refusal = 'd'
    elseif now - seen > limit then
      node.refusal = 's'
    end
  end
  nodes[index] = node
  return node
end

local function assign(item, job_key, node)
  node.used = node.used + item.slots
  redis.call('HSET', node.slots_key, item.job, '1:' .. node.epoch .. ':' .. item.slots, 'sum', node.used)
  redis.call('HSET', job_key, 'state', 'running', 'tenant', item.tenant, 'service', item.service,
    'slots', item.slots, 'node', node.id, 'epoch', node.epoch, 'attempt', 1, 'reply_to', item.reply_to,
    'spec', item.spec, 'submitted_at_ms', now, 'assigned_at_ms', now, 'retention_ms', retention)
  local spec = item.spec
  if #spec > inline then spec = '' end
  redis.call('XADD', node.dispatch_key, '*', 'j', item.job, 'a', 1, 't', item.tenant, 's', spec)
  if node.used >= node.max then
    announce('f', node.id, node.epoch, node.status, node.max, node.used, '')
  end
end

local replies = {}
for i = 1, item_count do
  local item, job_key = items[i], KEYS[3 + 3 * node_count + i]
  local record = redis.call('HMGET', job_key, 'state', 'node', 'attempt', 'assigned_at_ms')
  if record[1] then
    -- The defaults are for a record that was edited: a nil would cut the answer short.
    replies[i] = {2, record[2] or '', tonumber(record[3]) or 0, tonumber(record[4]) or 0}
  else
    local reply = {0}
    for _, index in ipairs(item.candidates) do
      local node = node_at(index)
      local refusal = node.refusal
      if not refusal and node.used + item.slots > node.max then refusal = 'f' end
      if not refusal then
        assign(item, job_key, node)
        local refusals = reply
        reply = {1, index, now, node.used}
        for k = 2, #refusals do reply[k + 3] = refusals[k] end
        break
      end
      local n = #reply
      reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = index, refusal, node.used, node.max
    end
    replies[i] = reply
  end
end
return replies

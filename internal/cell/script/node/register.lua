-- register: makes a node known, or changes its profile.
--
-- Guarantee: idempotent by epoch (boot id): the same call again changes nothing but
-- the time of the last heartbeat. A new epoch takes the node over: the jobs of the
-- old one go to their next attempts in the same script, its slots are free and its dispatch stream starts
-- empty, so nothing of an earlier incarnation can reach the new one. An epoch whose
-- profile was lost keeps the jobs that it owns. The epoch 'import' has no agent: its
-- node is draining, and takes no job before an agent takes it over.
--
-- KEYS[1] nodes:<node>           hash    profile
-- KEYS[2] load:<node>            string  deleted, the first heartbeat makes it; until then the profile's
--                                        registered_at_ms says when the node was last heard
-- KEYS[3] slots:<node>           hash
-- KEYS[4] dispatch:<node>        stream
-- KEYS[5] nodes:index:online     set
-- KEYS[6] index:revision         zset
-- KEYS[7] version:nodes          hash
-- KEYS[8] finished               zset
-- KEYS[9] due zset   KEYS[10] waiting hash   KEYS[11] version:waiting string
-- KEYS[12] serves:<node>         string  marked with a change of the profile: see take.lua
-- KEYS[13] drained               set     of nodes that operators have drained: see drain.lua
-- KEYS[14] metrics:<node>        string  deleted with load:<node>
-- KEYS[15..] pool:<pool>:members set     one for each pool of the new profile
-- ARGV[1]  node          ARGV[2]  epoch         ARGV[3]  channel
-- ARGV[4]  key prefix    ARGV[5]  tag part, ':{tag}' or ''
-- ARGV[6]  retention, ms ARGV[7]  failure of lost jobs, JSON
-- ARGV[8]  profile as JSON, for the event
-- ARGV[9]  max_concurrency            ARGV[10] pool_ids, JSON   ARGV[11] capabilities, JSON
-- ARGV[12] installed_services, JSON   ARGV[13] labels, JSON     ARGV[14] features_supported, JSON
-- for the epoch 'import' also what its caller has seen: a node that has changed since is left alone
-- ARGV[15] epoch, '' for no node   ARGV[16] last heartbeat, ms
-- Returns {revision, lost job, ...};  {-2} has changed since it was seen
-- Foreign keys (jobs, replies, former pools) come from records of this cell.
-- Redis 7.0. Cost: O(jobs lost + pools); eight commands for the new agent of an idle node.
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local due_key, waiting_key, waiting_version_key, serves_key, metrics_key = KEYS[9], KEYS[10], KEYS[11], KEYS[12], KEYS[14]
local node, epoch, channel, PREFIX, TAG = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local body, max, pool_ids, capabilities, services, labels, features = ARGV[8], ARGV[9], ARGV[10], ARGV[11], ARGV[12], ARGV[13], ARGV[14]
local call = redis.call -- to look it up each time is a hundredth of the cost
-- include lib/clock.lua

local before = call('HMGET', profile_key, 'epoch', 'status',
  'max_concurrency', 'pool_ids', 'capabilities', 'installed_services', 'labels', 'features_supported')
local taken, moved = before[1] ~= epoch, before[4] ~= pool_ids
local equal = not moved and before[3] == max and before[5] == capabilities and before[6] == services and
  before[7] == labels and before[8] == features
if equal and not taken then
  -- include lib/heard.lua
  return {tonumber(call('HGET', version_key, 'revision')) or 0}
end

if #ARGV > 14 then
  local heard = redis.pcall('GET', load_key)
  heard = type(heard) == 'string' and string.match(heard, '^%d%d%d%d%d%d%d%d%d%d%d%d%d') or 0
  if (before[1] or '') ~= ARGV[15] or tonumber(heard) > tonumber(ARGV[16]) or
    (tonumber(call('HGET', slots_key, 'sum')) or 0) > 0 then return {-2} end
end

-- Functions are made where they are needed: each costs as much as a tenth of a command.
local left
if moved then
  -- include lib/key.lua
  -- include lib/here.lua
  -- include lib/pool.lua
  left = former_pools(before[4], {unpack(KEYS, 15)})
  here(profile_key, left)
end

local lost, in_use, status = nil, 0, epoch == 'import' and 'draining' or 'online'
if before[2] == 'drained' or (not before[1] and call('SISMEMBER', KEYS[13], node) == 1) then
  status = 'drained' -- by an operator, whoever the agent is
end
if taken then
  local owned = call('HGETALL', slots_key)
  if #owned == 0 or (#owned == 2 and owned[1] == 'sum') then
    call('DEL', slots_key, load_key, metrics_key, dispatch_key, serves_key)
  else
    local retention, failure, inline = tonumber(ARGV[6]), ARGV[7], 0
    -- include lib/key.lua
    -- include lib/here.lua
    -- include lib/finish.lua
    -- include lib/job.lua
    -- include lib/queue.lua
    -- include lib/limit.lua
    -- include lib/retry.lua
    -- include lib/abandon.lua
    lost, in_use = abandon(owned, slots_key, node, failure, true, epoch, load_key, metrics_key, dispatch_key, serves_key)
    if #lost > 0 then forget() end
  end
else
  in_use = tonumber(call('HGET', slots_key, 'sum')) or 0
  status = before[2] or status
  call('SET', serves_key, '-', 'PX', '5000') -- a replica that has not heard of it yet must not say what it serves
  -- include lib/heard.lua
end
if moved then
  for _, members in ipairs(left) do call('SREM', members, node) end
  for i = 15, #KEYS do call('SADD', KEYS[i], node) end
end
if not before[1] and call('ZREM', revisions_key, '-' .. node) == 1 then
  call('HINCRBY', version_key, 'tombstones', -1)
end
-- include lib/revision.lua
-- As in lib/announce.lua, which says what the parts are.
local told = (status == 'online' or status == 'draining' or status == 'drained') and status or 'offline'
call('PUBLISH', channel, at .. ' 1 r ' .. revision .. ' ' .. node .. ' ' .. epoch .. ' ' ..
  told .. ' ' .. max .. ' ' .. in_use .. ' ' .. body)
if before[2] ~= status then call(status == 'online' and 'SADD' or 'SREM', online_key, node) end
if taken and equal then
  call('HSET', profile_key, 'epoch', epoch, 'status', status, 'version', revision, 'registered_at_ms', at)
elseif taken then
  -- What scripts read comes first: a small hash is searched from its beginning.
  call('HSET', profile_key, 'epoch', epoch, 'status', status, 'max_concurrency', max, 'version', revision,
    'registered_at_ms', at, 'node_id', node, 'health', 'Online', 'pool_ids', pool_ids, 'capabilities', capabilities,
    'installed_services', services, 'labels', labels, 'features_supported', features)
else
  call('HSET', profile_key, 'version', revision, 'max_concurrency', max, 'pool_ids', pool_ids, 'capabilities', capabilities,
    'installed_services', services, 'labels', labels, 'features_supported', features)
end
if not lost then return {revision} end
table.insert(lost, 1, revision)
return lost

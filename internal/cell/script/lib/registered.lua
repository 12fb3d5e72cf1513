-- registered: makes a node what it states: jobs of a former epoch go to their next attempts, then pools, revision
-- and profile follow. It is no function, and makes functions only where they are needed: each costs as much as a tenth
-- of a command.
-- Needs: STATED, at, before, body, call, channel, clock, dispatch_key, drained_key, due_key, epoch, equal, finished_key,
--   load_key, max, metrics_key, moved, node, now, now_us, online_key, pool_ids, profile_key, revisions_key, serves_key,
--   slots_key, taken, version_key, waiting_key, waiting_version_key
-- Defines: POOLS, in_use, left, lost, revision, status, told
local POOLS = 15 -- the first of KEYS that is the member set of a pool
local left
if moved then
  -- include lib/key.lua
  -- include lib/here.lua
  -- include lib/pool.lua
  left = former_pools(before[4], {unpack(KEYS, POOLS)})
  here(profile_key, left)
end

local lost, in_use, status = nil, 0, epoch == 'import' and 'draining' or 'online'
if before[2] == 'drained' or (not before[1] and call('SISMEMBER', drained_key, node) == 1) then
  status = 'drained' -- by an operator, for any agent
end
if taken then
  local owned = call('HGETALL', slots_key)
  if #owned == 0 or (#owned == 2 and owned[1] == 'sum') then
    call('DEL', slots_key, load_key, metrics_key, dispatch_key, serves_key)
  else
    local failure = '{"code":"node_lost","message":"the node\'s agent restarted and lost the job"}'
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
  call('SET', load_key, at)
end
if moved then
  for _, members in ipairs(left) do call('SREM', members, node) end
  for i = POOLS, #KEYS do call('SADD', KEYS[i], node) end
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
    'registered_at_ms', at, 'node_id', node, 'health', 'Online', 'pool_ids', pool_ids, unpack(ARGV, STATED))
else
  call('HSET', profile_key, 'version', revision, 'max_concurrency', max, 'pool_ids', pool_ids, unpack(ARGV, STATED))
end

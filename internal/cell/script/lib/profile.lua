-- profile: writes what a node states of itself (pools, revision and profile), and announces it as
-- lib/announce.lua does. An unknown status is published as offline.
-- Needs: POOLS, STATED, at, before, body, call, channel, clock, epoch, equal, in_use, left, max,
--   moved, node, online_key, pool_ids, profile_key, revisions_key, status, taken, version_key
-- Defines: health, published, revision
if moved then
  for _, members in ipairs(left) do call('SREM', members, node) end
  for i = POOLS, #KEYS do call('SADD', KEYS[i], node) end
end
if not before[1] and call('ZREM', revisions_key, '-' .. node) == 1 then
  call('HINCRBY', version_key, 'tombstones', -1)
end
-- include lib/revision.lua
local published = (status == 'online' or status == 'draining' or status == 'drained') and status or 'offline'
call('PUBLISH', channel, at .. ' 1 r ' .. revision .. ' ' .. node .. ' ' .. epoch .. ' ' ..
  published .. ' ' .. max .. ' ' .. in_use .. ' ' .. body)
if before[2] ~= status then call(status == 'online' and 'SADD' or 'SREM', online_key, node) end
-- include lib/health.lua
if taken and equal then
  call('HSET', profile_key, 'epoch', epoch, 'status', status, 'health', health(status), 'version', revision, 'registered_at_ms', at)
elseif taken then
  -- The fields that scripts read come first: Redis searches a small hash from its beginning.
  call('HSET', profile_key, 'epoch', epoch, 'status', status, 'max_concurrency', max, 'version', revision,
    'registered_at_ms', at, 'node_id', node, 'health', health(status), 'pool_ids', pool_ids, unpack(ARGV, STATED))
else
  call('HSET', profile_key, 'version', revision, 'max_concurrency', max, 'pool_ids', pool_ids, unpack(ARGV, STATED))
end

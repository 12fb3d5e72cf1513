-- node_state: everything that a replica's cache holds of one node, or its tombstone when
-- there is no profile. heartbeats_key is bound by the script, whose ARGV[5..] are the
-- profile fields to return, epoch first. The keys come from the index of this cell.
local function node_state(id, revision)
  local profile = redis.call('HMGET', key('nodes', id), unpack(ARGV, 5))
  if not profile[1] then return {'-' .. id, revision} end
  local node = {id, revision, redis.call('HGET', key('slots', id), 'sum') or '0',
    redis.call('ZSCORE', heartbeats_key, id) or '0', redis.call('GET', key('load', id)) or ''}
  for f = 1, #profile do node[f + 5] = profile[f] or '' end
  return node
end

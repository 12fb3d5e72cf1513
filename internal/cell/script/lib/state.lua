-- node_state: everything that a replica's cache holds of one node, or its tombstone when
-- there is no profile. heartbeats_key is bound by the script, whose ARGV[5..] are the
-- profile fields to return, epoch first. The keys come from the index of this cell. A
-- profile that is on another server, as during the migration of a hash slot, is an
-- error: it is no node that left.
local function node_state(id, revision)
  local profile_key = key('nodes', id)
  local profile = redis.call('HMGET', profile_key, unpack(ARGV, 5))
  if not profile[1] then
    here(heartbeats_key, {profile_key})
    return {'-' .. id, revision}
  end
  local node = {id, revision, redis.call('HGET', key('slots', id), 'sum') or '0',
    redis.call('ZSCORE', heartbeats_key, id) or '0', redis.call('GET', key('load', id)) or ''}
  for f = 1, #profile do node[f + 5] = profile[f] or '' end
  return node
end

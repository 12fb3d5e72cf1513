-- node_state: everything that a replica's cache holds of one node, or its tombstone when there is
-- no profile. fields are the profile fields to return, beginning with epoch, status and
-- registered_at_ms. A profile that is on another server, as during the migration of a hash slot, is
-- an error: the node has not left. A node without a valid heartbeat was last heard when it
-- registered.
-- Needs: fields, here, key, revisions_key
-- Defines: node_state
local function node_state(id, revision)
  local profile_key = key('nodes', id)
  local profile = redis.call('HMGET', profile_key, unpack(fields))
  if not profile[1] then
    here(revisions_key, {profile_key})
    return {'-' .. id, revision, redis.call('ZSCORE', revisions_key, '-' .. id) and '0' or '1'}
  end
  local load = redis.call('MGET', key('load', id))[1] or profile[3] or ''
  local beat = string.match(string.sub(load, 1, 13), '^%d+$') or '0'
  local resources = redis.call('MGET', key('metrics', id))[1] or ''
  local node = {id, revision, redis.call('HGET', key('slots', id), 'sum') or '0', beat, resources}
  for f = 1, #profile do node[f + 5] = profile[f] or '' end
  return node
end

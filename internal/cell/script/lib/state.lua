-- node_state: returns everything that a replica's cache holds of one node, or its tombstone if
-- there is no profile. fields are the profile fields to return, beginning with epoch, status and
-- registered_at_ms. If the profile is on another server, as while a hash slot migrates, that is an
-- error: the node has not left. For a node without a valid heartbeat the time of the registration
-- counts.
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
  local used = redis.call('HGET', key('slots', id), 'sum')
  if not used or used == '00' then used = '0' end -- see lib/beat.lua
  local node = {id, revision, used, beat, resources}
  for f = 1, #profile do node[f + 5] = profile[f] or '' end
  return node
end

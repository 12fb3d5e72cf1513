-- offer: lets a node take waiting jobs of these classes if it may get any, and announces the node
-- if that fills it. silence is in ms. Returns why the node gets none (as submit: f, g, d, s) or '',
-- how many jobs began, the slots in use, and the node's maximum.
-- Needs: announce, deliver, fill_node, now, silence
-- Defines: offer
local function offer(node, profile_key, slots_key, dispatch_key, load_key, classes)
  local profile = redis.pcall('HMGET', profile_key, 'epoch', 'status', 'max_concurrency', 'registered_at_ms')
  if profile.err or not profile[1] then return 'g', 0, 0, 0 end
  local max = string.find(profile[3] or '', '^%d%d?%d?%d?%d?$') and tonumber(profile[3]) or 0
  local sum = redis.pcall('HGET', slots_key, 'sum') or '0'
  -- If the sum is not a number, the node counts as full until the next heartbeat counts the slots
  -- again.
  local used = type(sum) == 'string' and string.find(sum, '^%d%d?%d?%d?%d?$') and tonumber(sum) or max
  if profile[2] ~= 'online' then return 'd', 0, used, max end
  local load = redis.call('MGET', load_key)[1] or profile[4] or ''
  local beat = tonumber(string.match(load, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d)') or '0')
  if now - beat > silence then return 's', 0, used, max end
  if used >= max then return 'f', 0, used, max end
  local function give(head, spec) deliver(node, dispatch_key, load, 'j', head, 's', spec) end
  local after, begun = fill_node(node, profile[1], max, used, slots_key, classes, give)
  if after >= max then announce('f', node, profile[1], profile[2], profile[3], after, '') end
  return '', begun, after, max
end

-- mend: compares some nodes with what exists for operators: the sets nodes:index:online and
-- pool:<pool>:members, and the field health. It corrects what an operator changed there, or a
-- failover lost.
--
-- Guarantee: touches nothing else, and nothing that is right. Nodes, one pool's set and its members
-- are drawn at random, so repeated calls reach all of them. It does not find the set of a pool that
-- no profile names any more.
--
-- KEYS[1] index:revision  zset   KEYS[2] nodes:index:online  set
-- ARGV[1] most nodes, most members of all sets together, and about how many entries of nodes in
--   sets
-- Returns 1
-- Foreign keys (profiles, pools) come from the index of this cell.
-- Redis 7.0. Cost: O(most).
local revisions_key, online_key, most = KEYS[1], KEYS[2], tonumber(ARGV[1])
-- include lib/key.lua
-- include lib/here.lua
-- include lib/pool.lua
-- include lib/sure.lua
-- include lib/health.lua

local profiles = {}
local function profile(id)
  if not profiles[id] then
    local key = key('nodes', id)
    here(revisions_key, {key})
    local fields = redis.call('HMGET', key, 'status', 'pool_ids', 'health')
    profiles[id] = {key = key, status = fields[1], health = fields[3], sets = former_pools(fields[2], {})}
  end
  return profiles[id]
end
local function contains(list, value)
  for i = 1, #list do
    if list[i] == value then return true end
  end
  return false
end
local function listed(answer) return not answer.err and answer or {} end

-- The draws need not be in random order. math.random returns the same numbers in each call.
local now = tonumber(redis.call('TIME')[2])
local ids = redis.call('ZRANDMEMBER', revisions_key, most)
local sets, known, looks = {}, {}, 0
for i = 1, #ids do
  if looks >= most then break end
  local id = ids[(now + i) % #ids + 1]
  local node = profile(id)
  if node.status then -- otherwise a tombstone, or a profile that was lost
    here(revisions_key, node.sets)
    looks = looks + 1 + #node.sets
    if node.status == 'online' and sure('SISMEMBER', online_key, id) == 0 then redis.call('SADD', online_key, id) end
    for _, members in ipairs(node.sets) do
      if sure('SISMEMBER', members, id) == 0 then redis.call('SADD', members, id) end
      if not known[members] then known[members], sets[#sets + 1] = true, members end
    end
    if node.health ~= health(node.status) then redis.call('HSET', node.key, 'health', health(node.status)) end
  end
end
local half = math.ceil(most / 2)
for _, id in ipairs(listed(redis.pcall('SRANDMEMBER', online_key, half))) do
  if profile(id).status ~= 'online' then redis.call('SREM', online_key, id) end
end
if #sets > 0 then
  local members = sets[math.floor(now / #ids) % #sets + 1]
  for _, id in ipairs(listed(redis.pcall('SRANDMEMBER', members, half))) do
    if not contains(profile(id).sets, members) then redis.call('SREM', members, id) end
  end
end
return 1

-- leave_pools: takes a node out of the pools of a profile, whose 'pool_ids' is
-- given. An operator may have edited it: what cannot be read is passed over, or
-- else the node could neither register nor leave.
local function leave_pools(node, pool_ids)
  local ok, pools = pcall(cjson.decode, pool_ids or '[]')
  if not ok or type(pools) ~= 'table' then return end
  for _, pool in ipairs(pools) do
    if type(pool) == 'string' then redis.call('SREM', key('pool', pool .. ':members'), node) end
  end
end

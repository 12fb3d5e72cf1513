-- former_pools: the member sets, each once, of the pools of a profile, whose 'pool_ids'
-- is given, but for those in stay. An operator may have edited it: what cannot be read
-- is passed over, or else the node could neither register nor leave.
-- Needs: key
-- Defines: former_pools
local function former_pools(pool_ids, stay)
  local keys, known = {}, {}
  for _, k in ipairs(stay) do known[k] = true end
  local ok, pools = pcall(cjson.decode, pool_ids or '[]')
  if not ok or type(pools) ~= 'table' then return keys end
  for _, pool in ipairs(pools) do
    local members = type(pool) == 'string' and key('pool', pool .. ':members')
    if members and not known[members] then
      known[members], keys[#keys + 1] = true, members
    end
  end
  return keys
end

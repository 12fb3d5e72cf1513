-- former_pools: returns the member sets of the pools in a profile's pool_ids, each once, except
-- those in stay. It skips what it cannot read: otherwise the node could neither register nor leave.
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

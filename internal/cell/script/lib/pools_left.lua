-- pools_left: finds the member sets that a node leaves because its profile no longer names their
-- pools. Functions are made only if they are needed: each costs as much as a tenth of a command.
-- Needs: POOLS, before, moved, profile_key
-- Defines: left
local left = {}
if moved then
  -- include lib/key.lua
  -- include lib/here.lua
  -- include lib/pool.lua
  left = former_pools(before[4], {unpack(KEYS, POOLS)})
  here(profile_key, left)
end

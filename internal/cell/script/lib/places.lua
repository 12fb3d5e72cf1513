-- forget_gone: removes entries from an index of ended jobs whose records are gone, oldest first, up
-- to the first whose record exists. It looks at no more than most entries, and returns true if
-- there may be more. Agents that end jobs do not know how long replicas keep records, so
-- index_finished may keep far too many entries. Protected: while a hash slot migrates keys may be
-- on another server, and an entry stays unless its record is known to be gone.
-- Needs: key
-- Defines: forget_gone
local function forget_gone(index_key, most)
  local function gone(job)
    return redis.pcall('EXISTS', index_key, key('jobs', job)) == 1 -- only the index exists
  end
  local oldest = redis.pcall('ZRANGE', index_key, 0, 0)
  if oldest.err or not oldest[1] or not gone(oldest[1]) then return false end
  local places = {}
  for _, job in ipairs(redis.call('ZRANGE', index_key, 0, most - 1)) do
    if not gone(job) then break end
    places[#places + 1] = job
  end
  for i = 1, #places, 2000 do redis.call('ZREM', index_key, unpack(places, i, math.min(i + 1999, #places))) end
  return #places == most
end

-- push: adds values to a list and returns its length.
-- Defines: push
local function push(list, values)
  return redis.call('RPUSH', list, unpack(values))
end

-- push: adds values to a list and returns its length.
local function push(list, values)
  return redis.call('RPUSH', list, unpack(values))
end

-- served: the queues that the node serves by the newest configuration of pools, and those of them
-- with jobs that wait. None where the node's sum was no number: the next heartbeat counts anew.
-- Needs: PREFIX, TAG, counted, freed, key, node, waiting, waiting_key, with_limits
-- Defines: classes, open, served, serves, version
-- Protected: while a hash slot migrates the keys may be on another server. Then no job gets the
-- slots.
local serves = redis.pcall('MGET', key('serves', node), PREFIX .. ':version:serves' .. TAG)
local version, classes = string.match(serves[1] or '', '^(%d+) (.*)$')
local served, open = {}, {}
if #freed > 0 and counted and version and version == serves[2] and classes ~= '' and (with_limits or waiting ~= 0) then
  for class in string.gmatch(classes, '%x+') do served[#served + 1] = class end
  local waits = redis.pcall('HMGET', waiting_key, unpack(served))
  for i, class in ipairs(served) do
    if waits.err or waits[i] then open[#open + 1] = class end
  end
end

-- served: finds the queues that the node serves by the newest configuration of pools, and those
-- among them with waiting jobs. There are none if the node's sum was not a number: the next
-- heartbeat counts the slots again. waiting is 1 if no job waits in the cell, and 2 if one does. It
-- is an error if the key is on another server, as while a hash slot migrates: then no job gets the
-- slots. EXISTS names two keys, because the server that the slot moves to answers for a single key
-- even if that key is nowhere. The slots hash exists: it has the sum.
-- Needs: counted, freed, node, prefix, slots_key, tag, try, waiting_key, with_limits
-- Defines: open, served, waiting
local served, open, waiting = {}, {}, nil
if #freed > 0 and counted then
  waiting = try('EXISTS', slots_key, waiting_key)
  if waiting ~= 1 or with_limits then
    local serves = try('MGET', prefix .. ':serves' .. tag .. ':' .. node, prefix .. ':version:serves' .. tag)
    local version, classes = string.match(serves[1] or '', '^(%d+) (.+)$')
    if version and version == serves[2] then
      for class in string.gmatch(classes, '%x+') do served[#served + 1] = class end
      local waits = try('HMGET', waiting_key, unpack(served))
      for i, class in ipairs(served) do
        if waits.err or waits[i] then open[#open + 1] = class end
      end
    end
  end
end

-- waiting_limit: enforces waiting_limit: the jobs that wait are bounded by class, by the number of
-- classes, for which replicas pay with every free node, by what is for later, and by the limit that
-- holds them back. most is waiting_limit.
-- Needs: due_key, key, most, sure, waiting_key
-- Defines: DUE_PER_CLASS, MOST_CLASSES, lengths, too_many
local MOST_CLASSES, DUE_PER_CLASS = 1024, 10
local lengths = {} -- of the queues that were looked at, by class
local function too_many(class, queue, later, closed)
  if later then return sure('ZCARD', due_key) >= most * DUE_PER_CLASS end
  local length = lengths[class] or sure('ZCARD', queue)
  lengths[class] = length
  if length >= most or closed and sure('ZCARD', key('parked', closed)) >= most then return true end
  return length == 0 and sure('HLEN', waiting_key) >= MOST_CLASSES and sure('HEXISTS', waiting_key, class) == 0
end

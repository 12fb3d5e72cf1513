-- waiting_limit: enforces waiting_limit. It bounds the waiting jobs of a class, the number of
-- classes (replicas look at all classes for every free node), the jobs for later, and the jobs that
-- a limit holds back. most is waiting_limit.
-- Needs: due_key, key, most, sure, waiting_key
-- Defines: DUE_PER_CLASS, MOST_CLASSES, lengths, too_many
local MOST_CLASSES, DUE_PER_CLASS = 1024, 10
local lengths = {} -- class -> length of its queue, once looked at
local function too_many(class, queue, later, closed)
  if later then return sure('ZCARD', due_key) >= most * DUE_PER_CLASS end
  local length = lengths[class] or sure('ZCARD', queue)
  lengths[class] = length
  if length >= most or closed and sure('ZCARD', key('parked', closed)) >= most then return true end
  return length == 0 and sure('HLEN', waiting_key) >= MOST_CLASSES and sure('HEXISTS', waiting_key, class) == 0
end

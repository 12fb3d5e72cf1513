-- sure: a command on a key of the queues. Where an operator made something else of the key it is made
-- anew: to end here, in the middle of a script, would lose the job that it has in hand.
-- Defines: sure
local function sure(command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if string.find(answer.err, 'WRONGTYPE', 1, true) or string.find(answer.err, 'not an integer', 1, true) then
    redis.call('DEL', name)
  end
  return redis.call(command, name, ...)
end

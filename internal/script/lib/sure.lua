-- sure: runs a command on a key. If an operator has given the key another type, sure deletes it and
-- runs the command on a new key: a script that stopped here would lose the job or schedule that it
-- works on.
-- Defines: sure
local function sure(command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if string.find(answer.err, 'WRONGTYPE', 1, true) or string.find(answer.err, 'not an integer', 1, true) then
    redis.call('DEL', name)
  end
  return redis.call(command, name, ...)
end

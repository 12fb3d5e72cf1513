-- sure: runs a command on a key. Where an operator made something else of the key, the key is deleted and made anew:
-- a script that ends here, in its middle, would lose the job or schedule that it works on.
-- Defines: sure
local function sure(command, name, ...)
  local answer = redis.pcall(command, name, ...)
  if type(answer) ~= 'table' or not answer.err then return answer end
  if string.find(answer.err, 'WRONGTYPE', 1, true) or string.find(answer.err, 'not an integer', 1, true) then
    redis.call('DEL', name)
  end
  return redis.call(command, name, ...)
end

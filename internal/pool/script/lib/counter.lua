-- config_counter: returns the version of the dynamic configuration, and the generation that was
-- made with its counter. 0 and '' if the counter is gone or not in the form that a release writes:
-- an operator may have edited it.
-- Needs: version_key
-- Defines: config_counter
local function config_counter()
  if redis.call('TYPE', version_key).ok ~= 'hash' then return 0, '' end
  local counter = redis.call('HMGET', version_key, 'revision', 'generation')
  if not counter[1] or not counter[2] or #counter[1] > 15 or not string.find(counter[1], '^[1-9]%d*$') then return 0, '' end
  return tonumber(counter[1]), counter[2]
end

-- head: returns what readers must know of a list: {fields of its record, JSON of the serving
-- version, JSON of the next one}, '' if there is none. Only step.lua uses the field step.
-- Needs: record_key, versions_key
-- Defines: head
local function head()
  local fields, chosen = {}, {serving = '0', next = '0'}
  local all = redis.call('HGETALL', record_key)
  for i = 1, #all, 2 do
    if chosen[all[i]] then chosen[all[i]] = all[i + 1] end
    if all[i] ~= 'step' then
      fields[#fields + 1] = all[i]
      fields[#fields + 1] = all[i + 1]
    end
  end
  local versions = redis.call('HMGET', versions_key, chosen.serving, chosen.next)
  return {fields, versions[1] or '', versions[2] or ''}
end

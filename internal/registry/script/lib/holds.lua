-- holds: evaluates rules of labels, as Go's freeslot.LabelRule.Holds does.
-- Defines: number, holds, all_hold
-- number parses a finite decimal number: tonumber would also accept hexadecimal ones and spaces.
local function number(value)
  if type(value) == 'string' and string.find(value, '[^0-9.eE+-]') then return nil end
  local x = tonumber(value)
  if not x or x == math.huge or x == -math.huge then return nil end
  return x
end
-- holds compares one value: a text or a number, or nil if it is missing.
local function holds(rule, value)
  local operator, values = rule.operator, rule.values
  if operator == 'exists' then return value ~= nil end
  if operator == 'not_exists' then return value == nil end
  if operator == 'in' or operator == 'not_in' then
    local found = false
    for i = 1, #values do found = found or values[i] == value end
    return found == (operator == 'in')
  end
  if value == nil then return false end
  local got, want = number(value), number(values[1])
  if not got or not want then return false end
  if operator == 'gt' then return got > want end
  if operator == 'ge' then return got >= want end
  if operator == 'lt' then return got < want end
  if operator == 'le' then return got <= want end
  error('unknown operator ' .. operator)
end
-- all_hold gets the value of a label from a function.
local function all_hold(rules, value)
  for i = 1, #rules do
    if not holds(rules[i], value(rules[i].label)) then return false end
  end
  return true
end

-- quota: adds up the ids that a list's changes without approval have changed, by hours, so that many
-- small changes do not pass for none. An approved change begins anew.
-- Needs: decision, most, now, record_key
-- Defines: beyond, hour, hours, spend
local hour = math.floor(now / 3600000)
local hours = {}

-- beyond returns how many ids were changed in the last 24 hours, to the hour, if n more are more than
-- most, or false. most is nil to count nothing, and -1 for no limit.
local function beyond(n)
  if not most or decision ~= '' then return false end
  local sum = 0
  for at, ids in string.gmatch(redis.call('HGET', record_key, 'unapproved') or '', '(%d+):(%d+)') do
    if hour - tonumber(at) <= 24 then
      hours[#hours + 1] = {tonumber(at), tonumber(ids)}
      sum = sum + tonumber(ids)
    end
  end
  return most >= 0 and sum + n > most and sum
end

local function spend(n)
  if not most then return end
  local text = ''
  if decision == '' then
    for _, h in ipairs(hours) do
      if h[1] == hour then n = n + h[2] else text = text .. string.format('%.0f:%.0f ', h[1], h[2]) end
    end
    text = text .. string.format('%.0f:%.0f', hour, n)
  end
  redis.call('HSET', record_key, 'unapproved', text)
end

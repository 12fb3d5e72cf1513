-- fresh: whether a failure of checks was written in the last 45 s, so that it is known to last.
-- Needs: now
-- Defines: fresh
local function fresh(checked_at)
  local age = now - (tonumber(checked_at) or 0)
  return age >= 0 and age <= 45000
end

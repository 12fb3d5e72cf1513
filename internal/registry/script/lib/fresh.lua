-- fresh: reports whether a failure of checks was written in the last 45 s, so that it still counts.
-- Needs: now
-- Defines: fresh
local function fresh(checked_at)
  local age = now - (tonumber(checked_at) or 0)
  return age >= 0 and age <= 45000
end

-- health: a node's status as operators read it: Online, Draining or Drained.
-- Defines: health
local function health(status) return string.upper(string.sub(status, 1, 1)) .. string.sub(status, 2) end

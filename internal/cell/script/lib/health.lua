-- health: returns a node's status in the form for operators: Online, Draining or Drained.
-- Defines: health
local function health(status) return string.upper(string.sub(status, 1, 1)) .. string.sub(status, 2) end

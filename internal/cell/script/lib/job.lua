-- job_parts: what a record's field job says: tenant, slots, class, priority, attempts that
-- it may have, deadline (ms, 0 for none) and the definition of its class; nil of one
-- that no release wrote.
-- Defines: job_parts
local function job_parts(static)
  local tenant, slots, class, priority, attempts, deadline, definition =
    string.match(static or '', '^(%S+) (%d+) %d+ %d+ (%x+) (%d) (%d+) (%d+) (.*)$')
  return tenant, tonumber(slots), class, tonumber(priority), tonumber(attempts), tonumber(deadline), definition
end

-- record: the field job of a job's record, whose parts are parted by a space. The definition of the class comes last: it
-- alone may be any text.
-- Defines: write_job
local function write_job(tenant, slots, submitted_at, retention, class, priority, attempts, deadline, definition)
  return tenant .. ' ' .. slots .. ' ' .. submitted_at .. ' ' .. retention .. ' ' .. class .. ' ' .. priority .. ' ' ..
    attempts .. ' ' .. deadline .. ' ' .. definition
end

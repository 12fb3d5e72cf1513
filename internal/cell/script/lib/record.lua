-- record: reads and writes the field job of a record: the parts that never change, separated by a
-- space. The definition of the class comes last, because it may be any text. read_job returns
-- texts, or nothing if the field has another form.
-- Defines: read_job, write_job
local function read_job(text)
  return string.match(text or '', '^(%S+) (%d+) (%d+) (%d+) (%x+) (%d) (%d+) (%d+) (.*)$')
end

local function write_job(tenant, slots, submitted_at, retention, class, priority, attempts, deadline, definition)
  return tenant .. ' ' .. slots .. ' ' .. submitted_at .. ' ' .. retention .. ' ' .. class .. ' ' .. priority .. ' ' ..
    attempts .. ' ' .. deadline .. ' ' .. definition
end

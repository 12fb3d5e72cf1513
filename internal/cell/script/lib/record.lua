-- record: reads and writes the field job of a record: the parts that never change, separated by a
-- space. The definition of the class comes last, because it may be any text. read_job returns
-- texts, or nothing if the field has another form.
-- Defines: first_look, read_job, write_job
local function read_job(text)
  return string.match(text or '', '^(%S+) (%d+) (%d+) (%d+) (%x+) (%d) (%d+) (%d+) (.*)$')
end

local function write_job(tenant, slots, submitted_at, retention, class, priority, attempts, deadline, definition)
  return tenant .. ' ' .. slots .. ' ' .. submitted_at .. ' ' .. retention .. ' ' .. class .. ' ' .. priority .. ' ' ..
    attempts .. ' ' .. deadline .. ' ' .. definition
end

-- first_look: returns when a waiting job must be looked at: at its deadline ('0' for none), or when
-- a node that fits must be there (nil for a job that one did fit), if that is earlier; nil for never.
local function first_look(deadline, node_by)
  if deadline == '0' then return node_by or nil end
  if node_by and tonumber(node_by) < tonumber(deadline) then return node_by end
  return deadline
end

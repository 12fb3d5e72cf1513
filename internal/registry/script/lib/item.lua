-- item: one instance as consumers get it. fields is empty for an id that is gone.
-- Defines: item
local function item(id, revision, fields, override)
  return {id, revision, fields, override or ''}
end

-- key: names a key of this cell that the caller could not know before the script
-- ran, because the name comes from a record of the cell: same hash slot by
-- construction. TAG is ':{tag}' or ''.
-- Needs: PREFIX, TAG
-- Defines: key
local function key(kind, rest)
  return PREFIX .. ':' .. kind .. TAG .. ':' .. rest
end

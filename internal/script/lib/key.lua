-- key: names a key of this cell that the caller could not know before the script
-- ran, because the name comes from a record of the cell: same hash slot by
-- construction. PREFIX and TAG (':{tag}' or '') are bound by the script.
local function key(kind, rest)
  return PREFIX .. ':' .. kind .. TAG .. ':' .. rest
end

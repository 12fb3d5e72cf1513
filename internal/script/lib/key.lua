-- key: names a key of this cell that the caller could not know before the script ran, because the name comes
-- from a record of the cell. Prefix and hash tag are those of KEYS[1], hence the hash slot is the same. TAG is
-- ':{tag}', or '' without a tag.
-- Defines: PREFIX, TAG, key
local PREFIX, TAG = string.match(KEYS[1], '^[^:]+'), string.match(KEYS[1], ':{[^}]+}') or ''
local function key(kind, rest)
  return PREFIX .. ':' .. kind .. TAG .. ':' .. rest
end

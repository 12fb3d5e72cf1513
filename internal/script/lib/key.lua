-- key: names a key of this cell that the caller did not know before the script ran, because the
-- name comes from a record of the cell. It has the prefix and the hash tag of KEYS[1], and so the
-- same hash slot. TAG is ':{tag}', or '' without a tag.
-- Defines: PREFIX, TAG, key
local PREFIX, TAG = string.match(KEYS[1], '^[^:]+'), string.match(KEYS[1], ':{[^}]+}') or ''
local function key(kind, rest)
  return PREFIX .. ':' .. kind .. TAG .. ':' .. rest
end

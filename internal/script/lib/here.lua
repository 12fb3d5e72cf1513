-- here: ends the script with an error where one of keys, which it found by what it read,
-- is on another server, as during the migration of a hash slot. To be called before the
-- first write, so that the script does nothing rather than half of its work. known is a
-- key that is here: only beside another one does Redis, on the server that a slot moves
-- to, tell a key that has not come yet from one that is nowhere.
-- Defines: here
local function here(known, keys)
  for i = 1, #keys, 1000 do redis.call('EXISTS', known, unpack(keys, i, math.min(i + 999, #keys))) end
end

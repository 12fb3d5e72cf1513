-- here: ends the script with an error if one of keys is on another server, as while a hash slot
-- migrates. A script calls it before its first write, with the keys that it found by reading, so
-- that it does nothing rather than half of its work. known is a key on this server: on the server
-- that a slot moves to, only a command with two keys fails for a key that has not arrived yet.
-- Defines: here
local function here(known, keys)
  for i = 1, #keys, 1000 do redis.call('EXISTS', known, unpack(keys, i, math.min(i + 999, #keys))) end
end

-- look: returns the revisions of lists.
--
-- Guarantee: it changes nothing.
--
-- KEYS[1] lists:index  hash
-- ARGV[1] '1' to also get the history of the server's data   ARGV[2..] up to 1,000 lists
-- Returns {at, history, revision and birth of each list with a space between, '' where there is none}
-- Redis 7.0. Cost: O(lists).
local index_key, asked = KEYS[1], ARGV[1] == '1'
-- include lib/at.lua
-- include lib/server.lua
local reply = {at, asked and server_history() or ''}
if #ARGV > 1 then
  for i, mark in ipairs(redis.call('HMGET', index_key, unpack(ARGV, 2))) do reply[2 + i] = mark or '' end
end
return reply

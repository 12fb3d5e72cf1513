-- delta: returns the head of a list, and its edits after a revision, oldest first.
--
-- Guarantee: it changes nothing. An edit is returned as a whole. With more = 0 the caller has
-- everything up to the head's revision, except edits that were trimmed: the head's floor names the
-- last of them.
--
-- KEYS[1] lists:record:<list>  hash   KEYS[2] lists:versions:<list>  hash   KEYS[3] lists:edits:<list>  stream
-- ARGV[1] revision   ARGV[2] entries of a page: it ends with the edit that reaches them
-- ARGV[3] '1' to also get the history of the server's data
-- Returns {1, at, history, head, more, {revision, entries}...}, entries a JSON array; {4, at, history, head, 0} the list
--   is deleted, or was never there: the record is empty
-- Redis 7.0. Cost: O(entries of the page).
local record_key, versions_key, edits_key = KEYS[1], KEYS[2], KEYS[3]
local after, page, asked = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
-- include lib/at.lua
-- include lib/head.lua
-- include lib/server.lua
local is = redis.call('HMGET', record_key, 'state', 'revision')
local reply = {1, at, asked and server_history() or '', head(), 0}
if not is[1] or is[1] == 'deleted' then
  reply[1] = 4
  return reply
end
local from, entries = '(' .. string.format('%.0f', after) .. '-0', 0
if after >= (tonumber(is[2]) or 0) then return reply end
while true do
  local items = redis.call('XRANGE', edits_key, from, '+', 'COUNT', 20)
  for _, item in ipairs(items) do
    if entries >= page then
      reply[5] = 1
      return reply
    end
    entries = entries + math.max(1, tonumber(item[2][2]))
    reply[#reply + 1] = {tonumber(string.match(item[1], '^%d+')), item[2][6]}
  end
  if #items < 20 then return reply end
  from = '(' .. items[20][1]
end

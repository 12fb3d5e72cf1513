-- tell: publishes a revision: with the head, entries (JSON), both, or neither, which sends readers
-- to the delta. The only call of PUBLISH becomes SPUBLISH on a cluster. The message names the
-- history of the server's data: after a failover that lost some data, revisions occur twice.
-- Needs: at, change_channel
-- Defines: server_history, publish, tell
-- include lib/server.lua
local function publish(channel, message) redis.call('PUBLISH', channel, message) end
local function tell(revision, birth, h, entries)
  local parts = {'{"revision":' .. revision .. ',"at":' .. at .. ',"birth":' .. cjson.encode(birth) .. ',"history":' .. cjson.encode(server_history())}
  if h then
    parts[2] = ',"head":{"record":' .. cjson.encode(h[1]) .. ',"serving":' .. cjson.encode(h[2]) .. ',"next":' .. cjson.encode(h[3]) .. '}'
  end
  if entries then parts[#parts + 1] = ',"entries":' .. entries end
  publish(change_channel, table.concat(parts) .. '}')
end

-- tell: publishes a revision: with the head, entries (JSON), both, or neither, which sends readers to the delta.
-- The one call of PUBLISH becomes SPUBLISH on a cluster.
-- Needs: at, change_channel
-- Defines: publish, tell
local function publish(channel, message) redis.call('PUBLISH', channel, message) end
local function tell(revision, birth, h, entries)
  local parts = {'{"revision":' .. revision .. ',"at":' .. at .. ',"birth":' .. cjson.encode(birth)}
  if h then
    parts[2] = ',"head":{"record":' .. cjson.encode(h[1]) .. ',"serving":' .. cjson.encode(h[2]) .. ',"next":' .. cjson.encode(h[3]) .. '}'
  end
  if entries then parts[#parts + 1] = ',"entries":' .. entries end
  publish(change_channel, table.concat(parts) .. '}')
end

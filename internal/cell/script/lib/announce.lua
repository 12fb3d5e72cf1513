-- announce: takes the next revision for one node, publishes what changed, and returns the revision
-- as text. Wire form: at version kind revision node epoch status max used body (separated by one
-- space; body is JSON to the end, or empty). internal/events decodes it. A status or a max that no
-- script writes is published as offline or 0.
-- Needs: at, channel, clock, revisions_key, version_key
-- Defines: announce
local function announce(kind, node, epoch, status, max, used, body)
  -- include lib/revision.lua
  if status ~= 'online' and status ~= 'draining' and status ~= 'drained' then status = 'offline' end
  if not string.find(max, '^%d%d?%d?%d?%d?$') then max = '0' end
  redis.call('PUBLISH', channel, at .. ' 1 ' .. kind .. ' ' .. revision .. ' ' .. node .. ' ' .. epoch .. ' ' ..
    status .. ' ' .. max .. ' ' .. used .. ' ' .. body)
  return revision
end

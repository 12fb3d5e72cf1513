-- announce: takes the next revision for one node and publishes what changed; returns it as text.
-- Wire form: at version kind revision node epoch status max used body (one space between; body is
-- JSON to the end, or empty). Decoder: internal/events. A status and a max that no script writes
-- are published as offline and 0.
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

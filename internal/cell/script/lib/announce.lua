-- announce: takes the next revision for one node and publishes what changed.
-- Revisions have no holes: whoever misses an event sees the gap at the next one.
-- Wire form: version kind revision now node epoch status max used body
-- (one space between; body is JSON to the end, or empty). Decoder: internal/events.
-- status and max come from a profile that an operator may have edited: what is none
-- of ours is published as offline and 0.
local function announce(kind, node, epoch, status, max, used, body)
  local revision = redis.call('HINCRBY', version_key, 'revision', 1)
  redis.call('ZADD', revisions_key, revision, node)
  if status ~= 'online' and status ~= 'draining' then status = 'offline' end
  redis.call('PUBLISH', channel, string.format('1 %s %.0f %.0f %s %s %s %.0f %.0f %s',
    kind, revision, now, node, epoch, status, tonumber(max) or 0, used, body))
  return revision
end

-- announce: takes the next revision for one node and publishes what changed; returns it
-- as text. Revisions have no holes: whoever misses an event sees the gap at the next one.
-- Wire form: version kind revision at node epoch status max used body
-- (one space between; body is JSON to the end, or empty). Decoder: internal/events.
-- status and max come from a profile that an operator may have edited: what is none
-- of ours is published as offline and 0.
local function announce(kind, node, epoch, status, max, used, body)
  local revision = redis.call('HINCRBY', version_key, 'revision', 1)
  revision = revision < 1e14 and revision .. '' or string.format('%.0f', revision)
  if revision == '1' then
    -- A counter that begins anew gets another name, so that nobody takes it for the one before.
    redis.call('HSET', version_key, 'generation', string.sub(redis.sha1hex(string.format('%.0f', now_us) .. node .. epoch), 1, 16))
  end
  redis.call('ZADD', revisions_key, revision, node)
  if status ~= 'online' and status ~= 'draining' then status = 'offline' end
  if not string.find(max, '^%d%d?%d?%d?%d?$') then max = '0' end
  redis.call('PUBLISH', channel, '1 ' .. kind .. ' ' .. revision .. ' ' .. at .. ' ' .. node .. ' ' .. epoch .. ' ' ..
    status .. ' ' .. max .. ' ' .. used .. ' ' .. body)
  return revision
end

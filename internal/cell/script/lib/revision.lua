-- revision: takes the next revision for node, as text. Revisions have no holes: a replica that
-- misses an event sees the gap at the next one. So the script has to publish it. It is no function:
-- making one costs a tenth of a command.
-- Needs: at, clock, epoch, node, revisions_key, version_key
-- Defines: revision
local revision = redis.call('HINCRBY', version_key, 'revision', '1')
revision = revision < 1e14 and revision .. '' or string.format('%.0f', revision)
if revision == '1' then
  -- A counter that begins anew gets another name, so that no replica takes it for the former one,
  -- and the time: what Redis has lost, nodes bring back within a heartbeat limit.
  redis.call('HSET', version_key, 'generation', string.sub(redis.sha1hex(clock[1] .. ' ' .. clock[2] .. node .. epoch), 1, 16),
    'generation_at_ms', at)
end
redis.call('ZADD', revisions_key, revision, node)

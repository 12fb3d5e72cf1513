-- revision: takes the next revision for node, as text. The script must publish it: revisions have
-- no holes, so that a replica that misses an event sees the gap at the next one. This is not a
-- function, because making one costs a tenth of a command.
-- Needs: at, clock, epoch, node, revisions_key, version_key
-- Defines: revision
local revision = redis.call('HINCRBY', version_key, 'revision', '1')
revision = revision < 1e14 and revision .. '' or string.format('%.0f', revision)
if revision == '1' then
  -- A counter that begins anew gets another name, so that no replica takes it for the former one.
  -- It also gets the time, because nodes restore what Redis has lost within a heartbeat limit.
  redis.call('HSET', version_key, 'generation', string.sub(redis.sha1hex(clock[1] .. ' ' .. clock[2] .. node .. epoch), 1, 16),
    'generation_at_ms', at)
end
redis.call('ZADD', revisions_key, revision, node)

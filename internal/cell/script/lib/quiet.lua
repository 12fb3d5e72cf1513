-- quiet: decides whether a heartbeat is quiet: it changes nothing, and every replica reads
-- index:heartbeats. Then it takes no revision and publishes nothing. A sum of '00' says that nothing
-- is in use, and that everyone has heard so: see beat.lua. mark, nil at first, serves all nodes of a
-- call.
-- Figures count as a change after 10 minutes, so that their at_ms is no older.
-- The index is not in KEYS: users of Redis' ACL that an older release made may not write it, and it
-- may be missing while a hash slot migrates. Then the heartbeat is announced.
-- Needs: at, call, figures, mark, metrics_key, named, node, profile, revisions_key, state, sum,
--   version_key
-- Sets: mark
-- Defines: quiet
local quiet = false
if not named and sum == '00' and profile[2] == state then
  if not mark then
    local till = call('HGET', version_key, 'quiet_until')
    mark = {till and #till == #at and at < till}
    mark[2] = string.match(revisions_key, '^[^:]+') .. ':index:heartbeats' .. (string.match(revisions_key, ':{[^}]+}') or '')
  end
  local same = mark[1]
  if same and figures ~= '' then
    local kept = call('MGET', metrics_key)[1] or ''
    local since, rest = string.match(kept, '^{"at_ms":(%d%d%d%d%d%d%d%d%d%d%d%d%d)(,.*)$')
    same = kept == figures or (since and figures == '{"at_ms":' .. at .. rest and at - since < 600000)
  end
  quiet = same and type(redis.pcall('ZADD', mark[2], at, node)) == 'number'
end

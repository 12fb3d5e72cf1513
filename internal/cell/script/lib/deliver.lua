-- deliver: adds an entry for a node to its dispatch stream, or to the stream of the gateway that it is
-- connected by, as its load says. What a gateway's entry tells of a job ends with node and session.
-- Protected: streams only deliver, and the next heartbeat mends what is missing. A gateway that is
-- gone has no stream, and gets none.
-- Needs: key
-- Defines: deliver
local function deliver(node, dispatch_key, load, field, head, ...)
  local stream, session = string.match(load or '', '^%d+ %d+ (%S+) (%S+)')
  if stream and stream ~= '-' then
    redis.pcall('XADD', key('gateway', stream), 'NOMKSTREAM', '*', field, head .. ' ' .. node .. ' ' .. session, ...)
  else
    redis.pcall('XADD', dispatch_key, '*', field, head, ...)
  end
end

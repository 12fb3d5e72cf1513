-- deliver: adds an entry for a node to its dispatch stream, or to the stream of its gateway if its
-- load names one. A gateway's entry names node and session at the end of a job's head. Protected:
-- streams only deliver, and the next heartbeat names what is missing. A gateway that is gone has no
-- stream, and gets none.
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

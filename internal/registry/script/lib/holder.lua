-- holder: returns the answer about an instance that another epoch holds: {3, epoch, host, port,
-- silent ms, interval ms, registered ms, 1 if it has replaced the asking epoch, else 0}.
-- Needs: at
-- Defines: holder
local function holder(key, score, epoch)
  local held = redis.call('HMGET', key, 'epoch', 'host', 'port', 'interval', 'registered', 'replaced')
  local silent = score and score ~= 'inf' and math.max(0, tonumber(at) - score) or 0
  return {3, held[1] or '', held[2] or '', held[3] or '', silent, tonumber(held[4]) or 0, tonumber(held[5]) or 0, held[6] == epoch and 1 or 0}
end

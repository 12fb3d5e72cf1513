-- reader: what the scripts of reports through replicas share. A reader is the owner and the client,
-- with a space between. An owner begins with its tenant, which ends at the first '/', or at the end.
-- Needs: now
-- Defines: drop_reader, drop_silent
local function drop_reader(readers_key, counts_key, reader)
  if redis.call('HDEL', readers_key, reader) == 0 then return end
  local tenant = string.match(reader, '^([^/ ]*)')
  if redis.call('HINCRBY', counts_key, tenant, -1) <= 0 then redis.call('HDEL', counts_key, tenant) end
end

-- drop_silent removes the readers that have been silent for that many ms, and those from the future.
local function drop_silent(readers_key, counts_key, ms)
  local all = redis.call('HGETALL', readers_key)
  for i = 1, #all, 2 do
    local silent = now - (tonumber(string.match(all[i + 1], '^[left ]*(%d+) ')) or 0)
    if silent > ms or silent < -60000 then drop_reader(readers_key, counts_key, all[i]) end
  end
end

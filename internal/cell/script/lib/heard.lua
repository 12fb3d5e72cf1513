-- heard: moves the time of the last heartbeat alone, whatever an operator made of the key.
-- Needs: at, load_key
-- Defines: length
local length = redis.pcall('SETRANGE', load_key, '0', at)
if type(length) == 'table' then redis.call('SET', load_key, at) end

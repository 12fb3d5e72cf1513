-- heard: moves the time of the last heartbeat alone, whatever an operator made of the key.
-- load_key and at are bound by the script.
local length = redis.pcall('SETRANGE', load_key, '0', at)
if type(length) == 'table' then redis.call('SET', load_key, at) end

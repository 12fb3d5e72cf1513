-- publish: the only call of PUBLISH, which becomes SPUBLISH on a cluster.
-- Defines: publish
local function publish(channel, message) redis.call('PUBLISH', channel, message) end

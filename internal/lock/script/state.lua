-- state: returns what is known of one lock, for operators.
--
-- Guarantee: it changes nothing, and everything that it returns was true at the same moment.
--
-- KEYS[1] held:<lock>  hash with TTL   KEYS[2] queue:<lock>  zset   KEYS[3] alive  zset
-- ARGV[1] the most waiters to list
-- Returns {now, acquisition, holder, since, left, token, count, grant, revoked or '', waiting, ticket, silent for ms or -1, ...};
--   acquisition is '' for a free lock; or {'error', text}
-- Redis 7.0. Cost: O(waiters listed).
-- include lib/clock.lua
-- include lib/hold.lua
local held = read_hold(KEYS[1])
if held and held.err then return {'error', held.err} end
local length = redis.pcall('ZCARD', KEYS[2])
if type(length) == 'table' then return {'error', KEYS[2] .. ': ' .. length.err} end
held = held or {acquisition = '', holder = '', since = '0', token = '', grant = ''}
local reply = {now, held.acquisition, held.holder, held.since, redis.call('PTTL', KEYS[1]), held.token,
  redis.call('HGET', KEYS[1], 'count') or '0', held.grant, held.revoked or '', length}
for _, ticket in ipairs(redis.call('ZRANGE', KEYS[2], 0, ARGV[1] - 1)) do
  local beat = redis.call('ZSCORE', KEYS[3], string.match(ticket, '^%w+') or '')
  reply[#reply + 1] = ticket
  reply[#reply + 1] = beat and now - beat or -1
end
return reply

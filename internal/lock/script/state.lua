-- state: returns what is known of locks, for operators.
--
-- Guarantee: it changes nothing, and everything that it returns was true at the same moment.
--
-- KEYS[1] alive  zset   KEYS[2i], KEYS[1+2i] for lock i: held:<lock> hash with TTL, queue:<lock> zset
-- ARGV[1] the most waiters to list of each
-- Returns for each lock
--   {now, acquisition, holder, since, left, lease, token, count, grant, revoked or '', waiting, ticket, silent for ms or -1, ...};
--     acquisition is '' for a free lock
--   {'error', text}
-- Redis 7.0. Cost: O(locks + waiters listed).
-- include lib/clock.lua
-- include lib/hold.lua
local alive_key = KEYS[1]

local function state(held_key, queue_key)
  local held = read_hold(held_key)
  if held and held.err then return {'error', held.err} end
  local length = redis.pcall('ZCARD', queue_key)
  if type(length) == 'table' then return {'error', queue_key .. ': ' .. length.err} end
  held = held or {acquisition = '', holder = '', since = '0', token = '', grant = ''}
  local more = redis.call('HMGET', held_key, 'lease', 'count')
  local out = {now, held.acquisition, held.holder, held.since, redis.call('PTTL', held_key), more[1] or '0', held.token,
    more[2] or '0', held.grant, held.revoked or '', length}
  for _, ticket in ipairs(redis.call('ZRANGE', queue_key, 0, ARGV[1] - 1)) do
    local beat = redis.call('ZSCORE', alive_key, string.match(ticket, '^%w+') or '')
    out[#out + 1] = ticket
    out[#out + 1] = beat and now - beat or -1
  end
  return out
end

local reply = {}
for i = 2, #KEYS, 2 do reply[i / 2] = state(KEYS[i], KEYS[i + 1]) end
return reply

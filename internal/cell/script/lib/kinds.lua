-- kinds: keeps one tenant from taking all kinds of waiting jobs. A kind is a class with waiting
-- jobs. It counts for the tenant whose job made its queue. The field by of the queue's fair hash
-- names that tenant, and goes with the queue. kinds:<tenant> has the classes that the tenant made,
-- and some whose queues are gone; it is checked when it seems full.
-- Needs: key, sure, waiting_key
-- Defines: add_kind, made_kinds, too_many_kinds
local made_kinds = {} -- tenants whose kinds this call has checked -> their number

-- too_many_kinds: reports whether the tenant may not make the queue of one more class. length is
-- the length of the queue.
local function too_many_kinds(tenant, length, limit)
  local kinds = key('kinds', tenant)
  if length > 0 or sure('SCARD', kinds) < limit then return false end
  if not made_kinds[tenant] then
    local made = 0
    for _, class in ipairs(sure('SMEMBERS', kinds)) do
      -- Protected: while a hash slot migrates, a queue that is gone cannot be told from one that
      -- has moved, which counts.
      local by = redis.pcall('HGET', key('fair', class), 'by')
      if type(by) == 'table' or by == tenant and sure('HEXISTS', waiting_key, class) == 1 then
        made = made + 1
      else
        redis.call('SREM', kinds, class)
      end
    end
    made_kinds[tenant] = made
  end
  return made_kinds[tenant] >= limit
end

-- add_kind: records that the tenant has made the queue of a class.
local function add_kind(tenant, class)
  redis.call('HSET', key('fair', class), 'by', tenant)
  sure('SADD', key('kinds', tenant), class)
  if made_kinds[tenant] then made_kinds[tenant] = made_kinds[tenant] + 1 end
end

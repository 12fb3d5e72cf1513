-- ended: which items of a completion end an attempt that the node owns in this epoch, and the
-- records of their jobs. used is what the node has in use without them; counted is false where an
-- edit left no number in the sum.
-- Needs: epoch, items, slots_key
-- Defines: before, counted, ended, freed, owned, owners, parsed, records, retries, slots, used,
--   with_limits
local owners = {'sum'}
for n = 1, items do owners[n + 1] = ARGV[6 * n - 1] end
local owned = redis.call('HMGET', slots_key, unpack(owners))
local counted = owned[1] and string.find(owned[1], '^%d+$')
local used = counted and tonumber(owned[1]) or 0
local before = used

local freed, slots = {}, {} -- jobs whose attempts end; by item, the slots of the attempt
local ended, retries = {}, false
local parsed = {} -- values of owned jobs: nearly all of a node are the same
for n = 1, items do
  local item, value = 6 * n - 1, owned[n + 1]
  local job = ARGV[item]
  if value and not ended[job] then
    local part = parsed[value]
    if not part then
      local attempt, owner, count = string.match(value, '^(%d+):([^:]*):(%d+)')
      part = {attempt, owner == epoch and tonumber(count)}
      parsed[value] = part
    end
    if part[2] and part[1] == ARGV[item + 1] then
      ended[job], freed[#freed + 1], slots[n] = true, job, part[2]
      used = used - part[2]
      retries = retries or ARGV[item + 5] ~= ''
    end
  end
end

local records, with_limits = {}, false -- by item
for n = 1, items do
  if slots[n] then
    local record = redis.pcall('HMGET', KEYS[6 + n], 'state', 'reply_to', 'job', 'fails', 'why', 'gates')
    -- A record of another type is as one that is gone; all other errors are for the caller.
    if record.err and not string.find(record.err, 'WRONGTYPE', 1, true) then return record end
    records[n] = record
    with_limits = with_limits or record[6]
  end
end

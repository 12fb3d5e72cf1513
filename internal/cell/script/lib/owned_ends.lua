-- owned_ends: finds the items of a completion that end an attempt which the node owns in this epoch, and
-- reads the records of their jobs. used becomes the node's slots in use without them; counted is
-- false if an edit left no number in the sum. plain is true if each item ends the first attempt of
-- a job for good, as nearly all do: no client cancels the job, no limit counts it, and one entry of
-- a reply stream has room for all results.
-- Needs: ENTRY_BYTES, call, epoch, items, slots_key, try
-- Defines: before, bytes, counted, ended, freed, jobs, owned, plain, records, retries, used, usual,
--   with_limits
local jobs = {} -- by item
for n = 1, items do jobs[n] = ARGV[6 * n - 1] end
local owned = call('HMGET', slots_key, 'sum', unpack(jobs))
local counted = owned[1] and string.find(owned[1], '^%d+$')
local used = counted and tonumber(owned[1]) or 0
local before, usual = used, '1:' .. epoch .. ':1' -- nearly all values are like this one, which is then not parsed

local freed, records = {}, {} -- jobs whose attempts end; their records, by item
local ended, retries, with_limits, bytes = {}, false, false, 0
local plain = counted and items <= 64
for n = 1, items do
  local item, job, value = 6 * n - 1, jobs[n], owned[n + 1]
  local attempt, owner, count = '1', epoch, 1
  if value ~= usual then attempt, owner, count = string.match(value or '', '^(%d+):([^:]*):(%d+)') end
  if owner == epoch and attempt == ARGV[item + 1] and not ended[job] then
    local state, result, failure, next = ARGV[item + 2], ARGV[item + 3], ARGV[item + 4], ARGV[item + 5]
    local record = try('HMGET', KEYS[6 + n], 'state', 'reply_to', 'job', 'gates', 'idem')
    -- A record of another type counts as one that is gone. All other errors go to the caller.
    if record.err and not string.find(record.err, 'WRONGTYPE', 1, true) then return record end
    ended[job], freed[#freed + 1], records[n] = true, job, record
    used, bytes = used - tonumber(count), bytes + #result + #failure
    retries, with_limits = retries or next ~= '', with_limits or record[4]
    plain = plain and next == '' and attempt == '1' and record[1] == 'running' and not record[4] and bytes < ENTRY_BYTES and
      (state == 'succeeded' and failure == '' or state == 'failed' and result == '')
  else
    plain = false
  end
end

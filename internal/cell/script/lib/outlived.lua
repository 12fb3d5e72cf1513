-- outlived: reports whether a key names a job whose record is gone and whose time is over. That is so
-- if a process without the right to shorten the key, or of a release that does not shorten keys,
-- ended the job. The id of a job begins with its cell and the time at which it was made (a ULID). A
-- key can name a job of another cell, about which this one knows nothing.
-- Needs: KEY_STAYS, key, now
-- Defines: ULID, outlived
local ULID = '0123456789ABCDEFGHJKMNPQRSTVWXYZ'
local function outlived(owner, job, keep)
  local cell, text = string.match(owner, '^(%d+)%-(%w%w%w%w%w%w%w%w%w%w)')
  if owner == job or not cell or string.match(job, '^%d+') ~= cell then return false end
  local made_at = 0 -- ms
  for digit in string.gmatch(text, '.') do made_at = made_at * 32 + (string.find(ULID, digit, 1, true) or 1) - 1 end
  return made_at + keep + KEY_STAYS < now and redis.pcall('EXISTS', key('jobs', owner)) == 0
end

-- attempts: keeps, in the record's field attempts, the last attempts that did not end their job
-- well: the oldest first, parted by commas. Each is its number, its node, when it began and ended
-- (ms; 0 if the record does not say), how it ended, and the code of its error, '-' for none or one
-- with other characters than names have.
-- Needs: at
-- Defines: MOST_ATTEMPTS, MOST_BYTES, note_attempt
local MOST_ATTEMPTS, MOST_BYTES = 20, 4096 -- the latter holds for no text but an edited one
local function note_attempt(job_key, node, attempt, ended, failure)
  local record = redis.pcall('HMGET', job_key, 'run', 'attempts')
  local begun = string.match(record[1] or '', '^' .. attempt .. ' %S+ %S+ (%d+)$') or '0'
  local code = string.match(failure, '^{"code":"([%w_.:/-]+)"') or '-'
  local text, kept = attempt .. ' ' .. node .. ' ' .. begun .. ' ' .. at .. ' ' .. ended .. ' ' .. string.sub(code, 1, 64), record[2]
  if kept and #kept <= MOST_BYTES then
    local _, commas = string.gsub(kept, ',', ',')
    for _ = MOST_ATTEMPTS - 1, commas do kept = string.match(kept, ',(.*)$') end
    text = kept .. ',' .. text
  end
  redis.call('HSET', job_key, 'attempts', text)
end

-- move_note: notes in the cell that jobs leave how far their moves are.
--
-- Guarantee: acts only on a job that makes this very move. Repeating a call changes nothing. A
-- record that points to the other cell is kept as long as the job and its result are kept there.
--
-- KEYS[1] moves  zset: the jobs that move   KEYS[2] moved  zset: the records that send on; each by
--   when to look at it, ms
-- KEYS[3..] jobs:<job>  hash, one an item
-- ARGV[1..] for each item: job; its move, that is cell and hop; what; a number, '' for none. What
-- is
--   t  the job, which had no cell, goes to the cell with that number
--   f  the job has arrived; from now on the record points to it, to be looked at at once
--   l  the job, or the record, is to be looked at after that many ms
--   e  the record is kept for that many ms more, and not looked at any more
-- Returns {1 or 0, ...}: whether it applied
-- Redis 7.0. Cost: O(items).
local moves_key, moved_key = KEYS[1], KEYS[2]
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/release_key.lua
-- include lib/sure.lua

-- The fields that stay in a record that points to another cell.
local STAYS = {state = true, job = true, move = true, hop = true, known = true, idem = true}

local reply = {}
for i = 3, #KEYS do
  local job_key, from = KEYS[i], 4 * (i - 3)
  local job, move, what, ms = ARGV[from + 1], ARGV[from + 2], ARGV[from + 3], tonumber(ARGV[from + 4])
  local record = redis.pcall('HMGET', job_key, 'state', 'move', 'idem')
  local state = not record.err and record[2] == move and record[1]
  reply[i - 2] = 1
  if what == 't' and state == 'moving' and string.sub(move, 1, 1) == '?' then
    redis.call('HSET', job_key, 'move', string.format('%.0f', ms) .. string.sub(move, 2))
    sure('ZADD', moves_key, at, job)
  elseif what == 'f' and state == 'moving' then
    local fields = {}
    for _, field in ipairs(redis.call('HKEYS', job_key)) do
      if not STAYS[field] then fields[#fields + 1] = field end
    end
    -- The write that frees memory comes first: it works even if Redis refuses other writes.
    if #fields > 0 then redis.call('HDEL', job_key, unpack(fields)) end
    redis.call('HSET', job_key, 'state', 'moved')
    sure('ZADD', moved_key, at, job)
    sure('ZREM', moves_key, job)
  elseif what == 'l' and (state == 'moving' or state == 'moved') then
    sure('ZADD', state == 'moving' and moves_key or moved_key, string.format('%.0f', now + ms), job)
  elseif what == 'e' and state == 'moved' then
    sure('ZREM', moved_key, job)
    if record[3] then release_key(record[3]) end
    if ms > 0 then redis.call('PEXPIRE', job_key, string.format('%.0f', ms)) else redis.call('DEL', job_key) end
  else
    reply[i - 2] = 0
  end
end
return reply

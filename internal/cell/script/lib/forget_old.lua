-- forget_old: drops entries from the index of finished jobs that are older than the longest
-- retention seen: their records have expired. It drops at most 1000 a call, many times what one
-- call adds, so that the first call after a quiet hour does not block Redis. Of the calls that add
-- few, one in 16 looks, chosen by the clock: it drops more than 16 calls add. This is not a
-- function, because making one costs a tenth of a command.
-- Needs: finished, finished_key, longest, now_us
if finished > 16 or now_us % 16 == 0 then
  local old = redis.call('ZCOUNT', finished_key, '-inf', string.format('(%.0f', now_us - longest * 1000))
  if old > 0 then redis.call('ZREMRANGEBYRANK', finished_key, 0, math.min(old, 1000) - 1) end
end

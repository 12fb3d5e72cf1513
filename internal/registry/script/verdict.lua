-- verdict: records the result of active checks of an instance.
--
-- Guarantee: nothing is written for an instance that is gone, or has another epoch than the checked
-- one. failing_since is the time since which all checks have failed. It starts anew if no failure
-- was written for 45 s, so a caller whose checks go on failing repeats the verdict sooner.
--
-- KEYS[1] registry:service:<service>         hash   KEYS[2] registry:changes:<service>         zset
-- KEYS[3] registry:overrides:<service>       hash   KEYS[4] registry:services:<service>:<id>   hash
-- ARGV[1] service   ARGV[2] stamp, random   ARGV[3] channel of changes   ARGV[4] id   ARGV[5] epoch
-- ARGV[6] passing or failing   ARGV[7] why, '' for passing
-- Returns 1 changed, 2 unchanged (of a failure only the time is written), 3 another epoch, 4 it is
--   not there
-- Redis 7.0. Cost: O(fields); two commands where nothing changes.
local record_key, changes_key, overrides_key, instance_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local service, stamp, change_channel, id, epoch, verdict, why = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
-- include lib/clock.lua
-- include lib/fresh.lua
local held = redis.pcall('HMGET', instance_key, 'epoch', 'checked', 'checked_why', 'failing_since', 'checked_at')
if not held[1] then return 4 end
if held[1] ~= epoch then return 3 end
local same = held[2] == verdict and (held[3] or '') == why
if verdict == 'failing' then
  local since = held[2] == verdict and fresh(held[5]) and held[4] or at
  redis.call('HSET', instance_key, 'checked', verdict, 'checked_why', why, 'failing_since', since, 'checked_at', at)
elseif not same then
  redis.call('HSET', instance_key, 'checked', verdict)
  redis.call('HDEL', instance_key, 'checked_why', 'failing_since', 'checked_at')
end
if same then return 2 end
-- include lib/publish.lua
-- include lib/change.lua
-- include lib/touch.lua
touch({id}, {instance_key}, 'checked')
return 1

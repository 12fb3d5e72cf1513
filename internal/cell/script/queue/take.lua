-- take: gives a node's free slots to waiting jobs of the named classes, and records that the node
-- serves them. From then on completions on the node hand their slots over by themselves.
--
-- Guarantee: never more than max_concurrency slots are in use; each job begins once. Repeating a
-- call gives what is free then.
--
-- KEYS[1] index:revision  zset   KEYS[2] version:nodes  hash
-- KEYS[3] waiting  hash          KEYS[4] version:waiting  string
-- KEYS[5] nodes:<node> hash      KEYS[6] slots:<node> hash    KEYS[7] dispatch:<node> stream
-- KEYS[8] load:<node> string     KEYS[9] serves:<node> string: version of the pools' configuration,
--   classes, joined by spaces; '-' for a while after the profile has changed
-- KEYS[10] version:serves  string: of the newest configuration that a replica told of
-- ARGV[1] channel   ARGV[2] heartbeat limit, ms   ARGV[3] node   ARGV[4] epoch of the node that the
--   caller knows, '' for any
-- ARGV[5] version of the configuration   ARGV[6..] classes, best first
-- Returns {jobs that began, slots in use, max_concurrency, why it may get none: '' f g d s, e for
--   another epoch}
-- Foreign keys (queues, jobs, replies, gateways) are of this cell.
-- Redis 7.0. Cost: O(jobs that begin + classes).
local revisions_key, version_key, waiting_key, waiting_version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local profile_key, slots_key, dispatch_key, load_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local serves_key, serves_version_key = KEYS[9], KEYS[10]
local channel, silence, node, epoch, config = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local MOST = 32 -- how many classes are recorded for a node
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/inline.lua
-- include lib/record.lua
-- include lib/queue.lua
-- include lib/limit.lua
-- include lib/fill_node.lua
-- include lib/deliver.lua
-- include lib/offer.lua

local classes = {unpack(ARGV, 6)}
-- The profile that the caller knows belongs to this epoch alone.
if epoch ~= '' and redis.call('HGET', profile_key, 'epoch') ~= epoch then return {0, 0, 0, 'e'} end
local why, begun, used, max = offer(node, profile_key, slots_key, dispatch_key, load_key, classes)
if why == '' or why == 'f' then
  local newest, before = redis.call('GET', serves_version_key), redis.call('GET', serves_key) or ''
  -- '-' is a mark: the profile has just changed, and the caller may not have heard of that.
  if before ~= '-' and (not newest or newest == config) then
    if not newest then redis.call('SET', serves_version_key, config) end
    local known, kept = {}, {}
    for _, class in ipairs(classes) do
      if not known[class] and #kept < MOST then known[class], kept[#kept + 1] = true, class end
    end
    -- Former classes stay, after the new ones, as long as jobs of them wait.
    local version, former = string.match(before, '^(%d+) (.*)$')
    if version == config then
      for class in string.gmatch(former, '%x+') do
        if not known[class] and #kept < MOST and redis.pcall('HEXISTS', waiting_key, class) == 1 then
          known[class], kept[#kept + 1] = true, class
        end
      end
    end
    redis.call('SET', serves_key, config .. ' ' .. table.concat(kept, ' '), 'EX', 3600)
  end
end
return {begun, used, max, why}

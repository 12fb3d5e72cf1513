-- deregister: takes a node out of the cell.
--
-- Guarantee: changes nothing unless the caller's epoch is the registered one;
-- the same call again finds nothing to do. Jobs that the node still owns end in
-- the same script. A tombstone of bounded history tells replicas that were away.
--
-- KEYS[1] nodes:<node>      hash     KEYS[2] load:<node>        string
-- KEYS[3] slots:<node>      hash     KEYS[4] dispatch:<node>    stream
-- KEYS[5] nodes:index:online set     KEYS[6] index:revision     zset
-- KEYS[7] version:nodes     hash     KEYS[8] finished           zset
-- ARGV[1] node          ARGV[2] epoch      ARGV[3] channel
-- ARGV[4] key prefix    ARGV[5] tag part   ARGV[6] retention, ms
-- ARGV[7] failure of the jobs still owned, JSON
-- ARGV[8] tombstones kept, at most
-- Returns {revision, lost job, ...}; {0} was not there; {-2} superseded
-- Foreign keys (jobs, replies, pools) come from records of this cell.
-- Redis 7.0. Cost: O(jobs lost + pools + silent nodes, where a tombstone is dropped).
local profile_key, load_key, slots_key, dispatch_key, online_key, revisions_key, version_key, finished_key =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local node, epoch, channel, PREFIX, TAG = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local retention, failure, tombstones = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
local inline = 0
-- include lib/clock.lua
-- include lib/key.lua
-- include lib/announce.lua
-- include lib/here.lua
-- include lib/finish.lua
-- include lib/abandon.lua
-- include lib/pool.lua

local profile = redis.call('HMGET', profile_key, 'epoch', 'pool_ids')
if not profile[1] then return {0} end
if profile[1] ~= epoch then return {-2} end
local pools = former_pools(profile[2], {})
here(profile_key, pools)

local lost = abandon(redis.call('HGETALL', slots_key), slots_key, node, failure, '', profile_key, load_key, dispatch_key)
forget()
for _, members in ipairs(pools) do redis.call('SREM', members, node) end
redis.call('SREM', online_key, node)

local revision = announce('o', node, epoch, 'offline', '0', 0, '')
redis.call('ZADD', revisions_key, revision, '-' .. node)
redis.call('ZREM', revisions_key, node)
if redis.call('HINCRBY', version_key, 'tombstones', 1) > tombstones then
  -- Living nodes move away from the oldest entries with every heartbeat, so only
  -- nodes that died in silence can come before the oldest tombstone.
  local first, dropped = 0, false
  repeat
    local oldest = redis.call('ZRANGE', revisions_key, first, first + 99, 'WITHSCORES')
    for i = 1, #oldest, 2 do
      if string.sub(oldest[i], 1, 1) == '-' then
        redis.call('ZREM', revisions_key, oldest[i])
        redis.call('HSET', version_key, 'floor', oldest[i + 1])
        redis.call('HINCRBY', version_key, 'tombstones', -1)
        dropped = true
        break
      end
    end
    first = first + 100
  until dropped or #oldest == 0
end
table.insert(lost, 1, revision)
return lost

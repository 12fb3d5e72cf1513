-- heartbeat: proves that a node lives, takes in its figures if there are any, and compares what the
-- agent runs with what the node owns, in both directions.
--
-- Guarantee: changes nothing unless the caller's epoch is the registered one. Never touches the
-- tracked profile unless the status changes. Harmless when repeated: the revision and the time move
-- on, nothing else. The sum of slots in use is counted anew, so that an edit by hand cannot leave
-- slots lost or given twice.
--
-- KEYS[1] nodes:<node>      hash     KEYS[2] load:<node>       string: the time of this heartbeat
-- KEYS[3] slots:<node>      hash     KEYS[4] index:revision    zset
-- KEYS[5] version:nodes     hash
-- KEYS[6] dispatch:<node>   stream   KEYS[7] nodes:index:online  set
-- KEYS[8] metrics:<node>    string: only with resources, which it then holds
-- ARGV[1] node              ARGV[2] epoch        ARGV[3] status, online or draining
-- ARGV[4] channel
-- ARGV[5] last dispatch entry taken in, '' for none or none since the last heartbeat: older entries
--   are trimmed
-- ARGV[6] resources, JSON; '' leaves the former ones in force: the event has none then, and a
--   replica that missed the last ones finds the gap in the revisions. Where they begin with
--   {"at_ms":0, they get the time of this heartbeat in its place
-- ARGV[7..] attempts that the agent holds, 'job:attempt'
--   From the fifth on those at the end that are '' are left out: a table of four costs least.
-- Returns one of
--   revision          where no slot is in use; as text, because that costs an answer least
--   'revision used'   where slots are in use
--   {revision, used, {start}, {stop}, {cancel}}   where a list is not empty; they hold 'job:attempt'
--   -1                unknown node: register again
--   -2                superseded by another epoch
-- Redis 7.0. Cost: O(slots in use + attempts named); seven commands for an idle node, one more with
--   resources.
local KEYS, ARGV = KEYS, ARGV -- a global is looked up by its name each time
local profile_key, load_key, slots_key, revisions_key, version_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dispatch_key, online_key = KEYS[6], KEYS[7]
local node, epoch, status, channel, read, resources = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] or '', ARGV[6] or ''

local call = redis.call -- to look it up each time is a hundredth of the cost

local profile = call('HMGET', profile_key, 'epoch', 'status')
if profile[1] ~= epoch then return profile[1] and -2 or -1 end
if profile[2] == 'drained' then status = 'drained' end -- only an operator undoes it
-- include lib/at.lua
if resources ~= '' and string.sub(resources, 1, 11) == '{"at_ms":0,' then resources = '{"at_ms":' .. at .. string.sub(resources, 11) end

local used, sum, start, stop, cancel, named = '0', '0', nil, nil, nil, nil
local owned = call('HGETALL', slots_key)
if #ARGV < 7 and (#owned == 0 or (#owned == 2 and owned[1] == 'sum')) then
  sum = owned[2] or '0'
else
  start, stop, cancel, named = {}, {}, {}, {}
  for i = 7, #ARGV do named[ARGV[i]] = true end
  local first, total = '1:' .. epoch .. ':', 0 -- first: how nearly all values begin; what follows is the slots
  for i = 1, #owned, 2 do
    local job, value = owned[i], owned[i + 1]
    if job == 'sum' then
      sum = value
    else
      local attempt, slots, mark
      if string.sub(value, 1, #first) == first then attempt, slots = '1', tonumber(string.sub(value, #first + 1)) end
      if not slots then attempt, slots, mark = string.match(value, '^(%d+):[^:]*:(%d+)(:?c?)$') end
      if attempt then
        local held = job .. ':' .. attempt
        total = total + slots
        if mark == ':c' then cancel[#cancel + 1] = held end
        if named[held] then named[held] = nil else start[#start + 1] = held end
      end
    end
  end
  used = total .. ''
end

-- First, because it frees memory: where Redis refuses other writes for lack of it, it then takes
-- those that follow.
if read ~= '' then call('XTRIM', dispatch_key, 'MINID', read) end
if sum ~= used then call('HSET', slots_key, 'sum', used) end
-- include lib/revision.lua
-- As in lib/announce.lua, without max_concurrency.
call('PUBLISH', channel, at .. ' 1 h ' .. revision .. ' ' .. node .. ' ' .. epoch .. ' ' .. status .. ' 0 ' .. used .. ' ' .. resources)
if profile[2] ~= status then
  -- include lib/health.lua
  call('HSET', profile_key, 'status', status, 'health', health(status), 'version', revision)
  call(status == 'online' and 'SADD' or 'SREM', online_key, node)
end
call('SET', load_key, at)
if resources ~= '' then call('SET', KEYS[8], resources) end
if named then
  for held in pairs(named) do stop[#stop + 1] = held end
  if #start + #stop + #cancel > 0 then return {revision, used, start, stop, cancel} end
end
return used == '0' and revision or revision .. ' ' .. used

-- beat: does what a heartbeat of a registered node does. owned is its slots hash (HGETALL), and
-- ARGV[first..last] are the attempts that its agent holds. answer becomes the script's answer for
-- this node: see heartbeat.lua.
-- A sum of '00' says that everyone has heard that nothing is in use. From then on heartbeats may be
-- quiet. Every other script writes plain numbers, so the first job ends that. The hash stays: while
-- a hash slot migrates Redis would refuse each call that has a missing key in KEYS.
-- Needs: at, call, channel, clock, epoch, first, last, load, load_key, metrics_key, node, online_key,
--   mark, owned, profile, profile_key, resources, revisions_key, slots_key, status, version_key
-- Sets: mark
-- Defines: answer, cancel, figures, named, quiet, start, state, stop, sum, used
local state = profile[2] == 'drained' and 'drained' or status -- only an operator undoes it
local figures = resources
if figures ~= '' and string.sub(figures, 1, 11) == '{"at_ms":0,' then figures = '{"at_ms":' .. at .. string.sub(figures, 11) end

local used, sum, start, stop, cancel, named = '0', nil, nil, nil, nil, nil
if last < first and (#owned == 0 or (#owned == 2 and owned[1] == 'sum')) then
  sum = owned[2]
else
  start, stop, cancel, named = {}, {}, {}, {}
  for i = first, last do named[ARGV[i]] = true end
  local usual, total = '1:' .. epoch .. ':', 0 -- usual: the beginning of nearly all values; the slots follow
  for i = 1, #owned, 2 do
    local job, value = owned[i], owned[i + 1]
    if job == 'sum' then
      sum = value
    else
      local attempt, slots, mark
      if string.sub(value, 1, #usual) == usual then attempt, slots = '1', tonumber(string.sub(value, #usual + 1)) end
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

-- include lib/quiet.lua
local answer = '0'
if not quiet then
  local noted = named and used or '00'
  if sum ~= noted then call('HSET', slots_key, 'sum', noted) end
  -- include lib/revision.lua
  -- As in lib/announce.lua, without max_concurrency.
  call('PUBLISH', channel, at .. ' 1 h ' .. revision .. ' ' .. node .. ' ' .. epoch .. ' ' .. state .. ' 0 ' .. used .. ' ' .. figures)
  if profile[2] ~= state then
    -- include lib/health.lua
    call('HSET', profile_key, 'status', state, 'health', health(state), 'version', revision)
    call(state == 'online' and 'SADD' or 'SREM', online_key, node)
  end
  if figures ~= '' then call('SET', metrics_key, figures) end
  answer = used == '0' and revision or revision .. ' ' .. used
  if named then
    for held in pairs(named) do stop[#stop + 1] = held end
    if #start + #stop + #cancel > 0 then answer = {revision, used, start, stop, cancel} end
  end
end
call('SET', load_key, load)

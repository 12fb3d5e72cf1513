-- taken_over: frees a node for a new epoch. The jobs of the former epoch go to their next attempts,
-- which counts as a failure, and the node's streams and figures start empty. Under the same epoch
-- the jobs stay, and the node counts as heard now: load is written to load:<node>. in_use becomes
-- the slots in use afterwards, status the node's status, and lost the jobs that were lost.
-- Needs: at, before, call, dispatch_key, drained_key, due_key, epoch, finished_key, load, load_key,
--   metrics_key, node, now, now_us, serves_key, slots_key, taken, waiting_key, waiting_version_key
-- Defines: in_use, lost, status
local lost, in_use, status = {}, 0, epoch == 'import' and 'draining' or 'online'
if before[2] == 'drained' or (not before[1] and call('SISMEMBER', drained_key, node) == 1) then
  status = 'drained' -- set by an operator, valid for any agent
end
if taken then
  local owned = call('HGETALL', slots_key)
  if #owned == 0 or (#owned == 2 and owned[1] == 'sum') then
    call('DEL', slots_key, load_key, metrics_key, dispatch_key, serves_key)
  else
    local failure, used = '{"code":"node_lost","message":"the node\'s agent restarted and lost the job"}', 0
    -- include lib/key.lua
    -- include lib/here.lua
    -- include lib/record.lua
    -- include lib/end_job.lua
    -- include lib/queue.lua
    -- include lib/limit.lua
    -- include lib/attempts.lua
    -- include lib/retry.lua
    -- include lib/abandon.lua
    lost, in_use = abandon(owned, slots_key, node, failure, true, epoch, load_key, metrics_key, dispatch_key, serves_key)
  end
else
  in_use = tonumber(call('HGET', slots_key, 'sum')) or 0
  status = before[2] or status
  call('SET', serves_key, '-', 'PX', '5000') -- a replica may not have heard of the change yet
  call('SET', load_key, load)
end

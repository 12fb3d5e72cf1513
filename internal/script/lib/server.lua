-- server_history: identifies this server's data: its run id and replication id. '' if the server
-- does not report them.
-- Defines: server_history
local function server_history()
  local ok, server = pcall(redis.call, 'INFO', 'server')
  local also, replication = pcall(redis.call, 'INFO', 'replication')
  if not ok or not also or type(server) ~= 'string' or type(replication) ~= 'string' then return '' end
  local run, history = string.match(server, 'run_id:(%w+)'), string.match(replication, 'master_replid:(%w+)')
  if not run or not history then return '' end
  return run .. ' ' .. history
end

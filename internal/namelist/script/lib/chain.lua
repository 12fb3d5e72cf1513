-- chain: what the scripts of chains share. Readers follow a chain by its place in the index of
-- lists and by its channel, like a list. No list has a name with '_'.
-- Needs: birth, chain, index_key, record_key, tell
-- Defines: change_chain, unknown_lists
local function unknown_lists(from)
  local unknown = {}
  for i = from, #ARGV do
    if redis.call('HEXISTS', index_key, ARGV[i]) == 0 then unknown[#unknown + 1] = ARGV[i] end
  end
  return unknown
end

-- change_chain gives a chain the next revision, and publishes it.
local function change_chain(live)
  local born = redis.call('HGET', record_key, 'birth')
  if not born then
    born = birth
    redis.call('HSET', record_key, 'birth', born)
  end
  local revision = string.format('%.0f', redis.call('HINCRBY', record_key, 'revision', 1))
  if live then
    redis.call('HSET', index_key, 'chain_' .. chain, revision .. ' ' .. born)
  else
    redis.call('HDEL', index_key, 'chain_' .. chain)
  end
  tell(revision, born)
end

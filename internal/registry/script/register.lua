-- register: creates, replaces or updates instances of a service.
--
-- Guarantee: an id is taken from another epoch only by a caller that names this epoch. The caller
-- must also be at the same host and port, or find the holder silent for three of its intervals, or
-- have registered the id later than the holder. An epoch never takes an id from the one that has
-- replaced it, and does not get the id back when that one is gone: Redis knows for 7 days which
-- epochs were replaced. So a late call of an earlier process changes nothing, even if Redis has
-- lost data meanwhile: the times of registration order the epochs of an id. Unchanged content is a
-- heartbeat and takes no revision. When Redis has no memory left, it accepts only such heartbeats.
--
-- KEYS[1] registry:services                       set
-- KEYS[2] registry:services:<service>:heartbeats  zset    KEYS[3] registry:service:<service>    hash
-- KEYS[4] registry:changes:<service>              zset    KEYS[5] registry:overrides:<service>  hash
-- KEYS[6] registry:checked                        set     KEYS[7] registry:service_replaced:<service>  zset
-- KEYS[8..] registry:services:<service>:<id>      hash, one an item
-- ARGV[1] service   ARGV[2] stamp, random   ARGV[3] channel of changes   ARGV[4] channel of metrics
-- ARGV[5] '1' also writes metrics as metadata_<type>_<field>
-- ARGV[6..] for each item: id; epoch; the epoch that it replaces, '' for none; when it first registered, ms,
--   0 for never; metrics, JSON or ''; count of the arguments that follow: the provider's fields and their values, the
--   first ones host, port, interval (ms, '0' for an instance that does not beat) and content, and the eleventh one check,
--   where there is one
-- Returns for each item {1, revision, registered ms} changed, {2, registered ms} the same content, {5} there is no
--   memory for the change, but an instance of this epoch has beaten, or
--   {3, epoch, host, port, silent ms, interval ms, registered ms, replaced} another epoch holds the id, as in holder, or
--   held it after the asking one and is gone: its epoch is '' then, and replaced 1
-- Redis 7.0. Cost: O(items * log(instances)); two commands an item, and about eight that all share.
local KEYS, ARGV = KEYS, ARGV -- a global is looked up by its name each time
local services_key, heartbeats_key, record_key, changes_key, overrides_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local checked_key, replaced_key = KEYS[6], KEYS[7]
local service, stamp, change_channel, metrics_channel, flat = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local call, try = redis.call, redis.pcall
-- include lib/clock.lua
-- include lib/publish.lua
-- include lib/change.lua
-- include lib/figures.lua

local items, ids, checked, from = {}, {}, {}, 6
for n = 1, #KEYS - 7 do
  local count = tonumber(ARGV[from + 5])
  ids[n] = ARGV[from]
  items[n] = {
    n = n, id = ids[n], key = KEYS[7 + n], epoch = ARGV[from + 1], replaces = ARGV[from + 2], since = tonumber(ARGV[from + 3]),
    metrics = ARGV[from + 4], first = from + 6, last = from + 5 + count, host = ARGV[from + 7], port = ARGV[from + 9],
    interval = tonumber(ARGV[from + 11]), content = ARGV[from + 13],
  }
  if items[n].last > from + 26 and ARGV[from + 26] == 'check' then
    items[n].check = ARGV[from + 27]
    checked[#checked + 1] = service .. ':' .. ids[n]
  end
  from = from + 6 + count
end

local scores = call('ZMSCORE', heartbeats_key, unpack(ids))
local reply, changed, kinds = {}, {registered = {}, replaced = {}, updated = {}}, {}
local moved, beats = {}, {} -- scores of instances that changed, and the items with the same content
for n, item in ipairs(items) do
  local old, score = try('HMGET', item.key, 'epoch', 'content', 'host', 'port', 'interval', 'registered', 'metrics', 'checked', 'checked_why', 'failing_since', 'check', 'checked_at', 'replaced'), scores[n]
  item.old = old
  item.score = item.interval > 0 and at or '+inf'
  local kind, first = 'registered', item.since > 0 and item.since or now
  if old[1] and score and old[1] ~= item.epoch then
    local silent, interval = math.max(0, now - score), tonumber(old[5]) or 0
    kind = 'replaced'
    local held = tonumber(old[6]) or 0
    first = math.max(first, now, held + 1)
    local moves = old[3] ~= item.host or old[4] ~= item.port
    if item.replaces ~= old[1] or old[13] == item.epoch or moves and item.since <= held and (score == 'inf' or silent < 3 * interval) then
      kind = nil
      -- include lib/holder.lua
      reply[n] = holder(item.key, score, item.epoch)
    end
  elseif old[1] and score then
    kind = 'updated'
    if old[2] == item.content then
      kind = nil
      reply[n] = {2, tonumber(old[6]) or 0}
      beats[#beats + 1] = item
    end
  elseif call('ZSCORE', replaced_key, item.id .. ' ' .. item.epoch) then
    kind = nil
    reply[n] = {3, '', '', '', 0, 0, 0, 1}
  end
  item.registered = string.format('%.0f', first)
  if kind then
    local group = changed[kind]
    group[#group + 1] = item
  end
end

local changes = #changed.registered + #changed.replaced + #changed.updated
if changes > 0 or #beats > 0 then
  local listed = try('SADD', services_key, service)
  if type(listed) == 'table' then
    if string.sub(listed.err, 1, 3) ~= 'OOM' then return listed end
    call('HDEL', record_key, '') -- Redis accepts what follows a write that needs no memory
    for kind, group in pairs(changed) do
      for _, item in ipairs(group) do
        reply[item.n], item.metrics = {5}, ''
        if kind == 'updated' then beats[#beats + 1] = item end
      end
    end
    changes = 0
  end
end

if changes > 0 then
  if call('ZCARD', heartbeats_key) == 0 then
    for _, key in ipairs({record_key, changes_key, overrides_key}) do call('PERSIST', key) end
    call('HSET', record_key, 'cleaned', at)
  end
  local longest, before = 0, tonumber(call('HGET', record_key, 'longest')) or 0
  local marks = {}
  for _, kind in ipairs({'registered', 'replaced', 'updated'}) do
    local group = changed[kind]
    if #group > 0 then
      local revision, names, entries = next_revision(''), {}, {}
      for i, item in ipairs(group) do names[i] = item.id end
      local overrides = call('HMGET', overrides_key, unpack(names))
      for i, item in ipairs(group) do
        local old = item.old
        local fields = {unpack(ARGV, item.first, item.last)}
        local function add(name, value)
          if value and value ~= '' then
            fields[#fields + 1] = name
            fields[#fields + 1] = value
          end
        end
        add('epoch', item.epoch)
        add('revision', revision .. '')
        add('heartbeat', at)
        add('lastMetadataUpdate', at)
        if kind == 'updated' then
          add('registered', old[6])
          add('replaced', old[13])
          -- A verdict of another check, or of another address, no longer applies.
          if item.check == (old[11] or nil) and item.host == old[3] and item.port == old[4] then
            add('checked', old[8])
            add('checked_why', old[9])
            add('failing_since', old[10])
            add('checked_at', old[12])
          end
          if item.metrics == '' then item.metrics = old[7] or '' end
        else
          add('registered', item.registered)
          if kind == 'replaced' then
            add('replaced', old[1])
            -- Operators share an epoch, and so do copies of version 1: neither is one life.
            if old[1] ~= 'operator' and old[1] ~= 'v1' then
              marks[#marks + 1] = at
              marks[#marks + 1] = item.id .. ' ' .. old[1]
            end
          end
        end
        if item.metrics ~= '' then add_figures(fields, item.metrics) end
        if old[1] or old[2] or old.err then call('DEL', item.key) end
        call('HSET', item.key, unpack(fields))
        local override = overrides[i]
        if override and string.find(override, '"gone_ms":', 1, true) then
          local ok, set = pcall(cjson.decode, override)
          if ok and type(set) == 'table' then
            set.gone_ms = nil
            override = cjson.encode(set)
            call('HSET', overrides_key, item.id, override)
          end
        end
        entries[i] = entry(item.id, revision, fields, override)
        moved[#moved + 1] = item.score
        moved[#moved + 1] = item.id
        longest = math.max(longest, item.interval)
        reply[item.n] = {1, revision, tonumber(kind == 'updated' and old[6] or item.registered) or 0}
      end
      announce(kind == 'registered' and kind or 'updated', kind, revision, names, entries)
    end
  end
  if #marks > 0 then
    call('ZADD', replaced_key, unpack(marks))
    local over = call('ZCARD', replaced_key) - 10000
    if over > 0 then call('ZPOPMIN', replaced_key, over) end
    call('PEXPIRE', replaced_key, 604800000)
  end
  if longest > before then call('HSET', record_key, 'longest', longest) end
end

for _, item in ipairs(beats) do
  moved[#moved + 1] = item.score
  moved[#moved + 1] = item.id
  local fields = {'heartbeat', at, 'lastMetadataUpdate', at}
  if item.metrics ~= '' then
    add_figures(fields, item.metrics)
    publish_figures(item.id, item.metrics)
  end
  call('HSET', item.key, unpack(fields))
end
if #moved > 0 then
  call('ZADD', heartbeats_key, unpack(moved))
  if #checked > 0 then call('SADD', checked_key, unpack(checked)) end
end
return reply

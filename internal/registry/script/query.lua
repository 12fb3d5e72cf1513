-- query: returns a page of the instances of a service that a filter selects.
--
-- Guarantee: it changes nothing. An instance that exists and matches from the first page to the
-- last is on one of them, maybe on two. A page can be empty and not the last.
--
-- KEYS[1] registry:service:<service>  hash   KEYS[2] registry:services:<service>:heartbeats  zset
-- KEYS[3] registry:overrides:<service>  hash
-- ARGV[1] cursor, '0' at first   ARGV[2] about how many to read   ARGV[3] what keys of instances begin with
-- ARGV[4] JSON {metadata: [rule...], metrics: [{rules: [rule...], not: bool}...]}: of metadata all rules must hold, of
-- each of metrics all rules, or with 'not' not all; labels of the latter are type.field
-- Returns {head, cursor, {id, revision, fields, override}...}; cursor '0' is the end
-- Redis 7.0. Cost: O(instances of the page), whatever the filter takes.
-- include lib/head.lua
-- include lib/here.lua
-- include lib/item.lua
-- include lib/holds.lua
local record_key, heartbeats_key, overrides_key = KEYS[1], KEYS[2], KEYS[3]
local cursor, size, begin, filter = ARGV[1], ARGV[2], ARGV[3], cjson.decode(ARGV[4])
local metadata_rules, comparisons = filter.metadata or {}, filter.metrics or {}
local scanned = redis.call('ZSCAN', heartbeats_key, cursor, 'COUNT', size)
local found = scanned[2]
local reply = {head(record_key), scanned[1]}
local n = #found / 2
if n == 0 then return reply end
local ids, instance_keys = {}, {}
for i = 1, n do ids[i], instance_keys[i] = found[2 * i - 1], begin .. found[2 * i - 1] end
here(heartbeats_key, instance_keys)
local overrides = redis.call('HMGET', overrides_key, unpack(ids))
local function metadata_holds(fields)
  if #metadata_rules == 0 then return true end
  return all_hold(metadata_rules, function(label) return fields['metadata_' .. label] end)
end
-- Metrics that cannot be read are none.
local function metrics_hold(json)
  if #comparisons == 0 then return true end
  local ok, metrics = pcall(cjson.decode, json or '')
  local function figure(label)
    local kind, name = string.match(label, '^([^.]*)%.(.*)$')
    local fields = ok and type(metrics) == 'table' and metrics[kind]
    if type(fields) ~= 'table' then return nil end
    local value = fields[name]
    if type(value) == 'boolean' then return tostring(value) end
    if type(value) == 'string' or type(value) == 'number' then return value end
    return nil
  end
  for i = 1, #comparisons do
    if all_hold(comparisons[i].rules, figure) == comparisons[i]['not'] then return false end
  end
  return true
end
for i = 1, n do
  local list = redis.call('HGETALL', instance_keys[i])
  local fields = {}
  for j = 1, #list, 2 do fields[list[j]] = list[j + 1] end
  if #list > 0 and metadata_holds(fields) and metrics_hold(fields['metrics']) then
    reply[#reply + 1] = item(ids[i], fields['revision'] or '0', list, overrides[i])
  end
end
return reply

-- figures: the metrics of an instance as they are stored and published. flat also writes each
-- figure as metadata_<type>_<field>, for readers that know the second version.
-- Needs: at, flat, metrics_channel, publish
-- Defines: add_figures, publish_figures
local function add_figures(fields, json)
  fields[#fields + 1] = 'metrics'
  fields[#fields + 1] = json
  if not flat then return end
  local ok, types = pcall(cjson.decode, json)
  if not ok or type(types) ~= 'table' then return end
  for name, figures in pairs(types) do
    if type(figures) == 'table' then
      for field, value in pairs(figures) do
        fields[#fields + 1] = 'metadata_' .. name .. '_' .. field
        fields[#fields + 1] = tostring(value)
      end
    end
  end
end
local function publish_figures(id, json)
  publish(metrics_channel, '{"id":' .. cjson.encode(id) .. ',"metrics":' .. json .. ',"timestamp":' .. at .. '}')
end

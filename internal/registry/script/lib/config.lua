-- config: publishes a change of a named document.
-- Needs: change_channel, name, now, publish
-- Defines: tell_config
local function tell_config(version, deleted)
  publish(change_channel, cjson.encode({name = name, version = version, deleted = deleted, at_ms = now}))
end

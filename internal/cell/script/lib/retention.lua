-- retention: how long a record is kept if its field job has another form, in ms.
-- Defines: RETENTION
local RETENTION = 3600000

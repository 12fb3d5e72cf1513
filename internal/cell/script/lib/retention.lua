-- retention: how long a record is kept whose field job has another form, ms.
-- Defines: RETENTION
local RETENTION = 3600000

-- terminal_states: the states of a job that has ended, and the least time for which the record of a job from
-- another cell is kept.
-- Defines: ENDED, MOVE_RETENTION
local ENDED = {succeeded = true, failed = true, cancelled = true, expired = true, dead = true}
local MOVE_RETENTION = 120000 -- ms, as moveRetention in cell.go: longer than moveLife in move_cell.go

-- ends: the states in which a job has ended, and how long its record is kept at least where it came
-- from another cell.
-- Defines: ENDED, MOVE_RETENTION
local ENDED = {succeeded = true, failed = true, cancelled = true, expired = true, dead = true}
local MOVE_RETENTION = 120000 -- ms, as moveRetention in move.go: longer than what a call may know of a job that moves

// Package audit records who changed what: every change, except those that a client makes of its own
// jobs and schedules.
//
//	Begin  writes the entry before the change is made
//	End    completes it, and writes one line to the log
//
// Entries are in the first cell of a system: changes under way in a hash, ended ones in a capped
// stream. A change whose replica died in between stays in the hash, and its outcome is unknown.
//
// An audit that cannot be written does not stop a change, unless Config.Required says so: the log
// line then has the whole entry, and Change.Recorded is false.
package audit

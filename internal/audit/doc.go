// Package audit records who changed what: every change, except those that a client makes of its own
// jobs.
//
//	Begin  writes the entry before the change is made
//	End    completes it, and writes one line to the log
//
// Entries are in the first cell of a system: changes under way in a hash, ended ones in a capped
// stream. Clients and tenant-operators have a hash and a stream apart, so that they cannot push out
// the entries of operators; Read shows both as one. A change whose replica died in between stays in
// the hash, and its outcome is unknown.
//
// An audit that cannot be written does not stop a change, unless Config.Required says so: the log
// line then has the whole entry, and Change.Lost says why.
package audit

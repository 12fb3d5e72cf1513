// Package cell keeps jobs, nodes, slots and queues in Redis. It has the key layout, the Lua
// scripts, and one Go function for each script. A [Set] holds all cells of a system.
//
// A cell is the set of keys that share one Redis hash slot, so it is the unit of atomicity. Every
// state change of a job or node is one script in one cell:
//
//	submit     none -> running     record, slot and dispatch entry together
//	enqueue    none -> waiting, scheduled; free slots of candidates to the first in line
//	take       waiting -> running  a free node and the queues that it fits
//	complete   running, cancelling -> an end, retry_wait or waiting; its slot to the next
//	due        scheduled, retry_wait -> waiting; deadlines that have passed
//	move       waiting -> moving, on the way to another cell; moves: reads the moving jobs
//	move_in    none -> waiting, for a job from another cell; move_ack: settles its move
//	move_note  moving -> a record that points to the other cell
//	cancel     waiting, scheduled, retry_wait -> cancelled; running -> cancelling
//	register   takes a node over: jobs of the former epoch -> waiting, or dead
//	deregister node gone: jobs still owned -> waiting, without a failure
//	reap       silent node gone: jobs still owned -> waiting, or dead
//	drain      an operator stops a node from getting jobs, or allows it again
//	limits     corrects the counts of limits, and releases jobs that they held back
//	progress   a handler's reports; checked against the slot, as an end is
//	drop       forgets a job that has ended; retain: the oldest, beyond a number of bytes
//	rate       permits to submit, from a tenant's bucket
//	serves     the configuration of pools by which nodes serve queues
//	heartbeat  liveness, load, ownership check; heartbeats: for nodes behind a gateway
//	link       the node's owner, and the gateway that connects it
//	owned_spec the spec of a job, for the node that owns it
//	attach     which replica gets the result
//	changes    what a replica's cache has missed; nodes: some nodes by their ids
//	identity   the history that the server's data belongs to
//	cells      the numbers of cells and servers
//
// Guarantees:
//   - The slots in use on a node never exceed its max_concurrency.
//   - An attempt ends once, by its owner, in the epoch that it was given to.
//   - Every script can be repeated without harm, because a call that returned an error may have
//     been applied.
//   - Scripts compare times with Redis' clock only.
//
// Submit, EnqueueAll and Complete gather concurrent callers. While two calls are under way (up to
// eight for submits while there are few jobs), the next one collects items. So no caller waits for
// a batch to fill, and a busy cell pays Lua's fixed cost once for many jobs. A single caller makes
// its call itself.
//
// The jobs that one submit places on a node share one entry of the node's stream. The ends that one
// call reports to a replica share one entry of its reply stream. An entry has 64 KiB and up to one
// job more.
//
// The first word of a file's name is its room, as the folders of the scripts are. An arrow points
// to what a room may use:
//
//	access, check, lifecycle -> all rooms
//	move -> queue -> job -> base            jobs on the way to another cell; lines and limits; jobs
//	                node -> base            nodes and their heartbeats
//	base: all other files                   Cell, Set, what callers pass, forms of keys and values
//
// No two files use each other, not even over others. TestRooms checks both.
//
// See package script for how scripts run, what happens on NOSCRIPT, and who repeats a call.
package cell

// Package cell keeps jobs, nodes, slots and queues in Redis: the key layout, the Lua
// scripts, and one Go function a script. A [Set] is all cells of a system.
//
// A cell is the set of keys that share one Redis hash slot, and so the unit of
// atomicity. Every state change of a job or node is one script in one cell:
//
//	submit     none -> running     record, slot and dispatch entry together
//	enqueue    none -> waiting, scheduled; free slots of candidates to the first in line
//	take       waiting -> running  a free node and the queues that it fits
//	complete   running, cancelling -> an end, retry_wait or waiting; its slot to the next
//	due        scheduled, retry_wait -> waiting; deadlines that have passed
//	move       waiting -> moving, on the way to another cell; moves: which do
//	move_in    none -> waiting, of a job that comes from another cell; move_ack: settles that
//	move_note  moving -> a record that sends on to the other cell
//	cancel     waiting, scheduled, retry_wait -> cancelled; running -> cancelling
//	register   takes a node over: jobs of the former epoch -> waiting, or dead
//	deregister node gone: jobs still owned -> waiting, without a failure
//	reap       silent node gone: jobs still owned -> waiting, or dead
//	drain      an operator's word that a node gets no jobs, and its end
//	gates      limits: who counts at them still, and who is held back no more
//	progress   what a handler tells; checked against the slot as its end is
//	drop       forgets a job that has ended; retain: the oldest, beyond a number of bytes
//	rate       permits to submit, out of a tenant's bucket
//	serves     by which configuration of pools nodes serve queues
//	heartbeat  liveness, load, ownership check; heartbeats: of nodes behind a gateway
//	link       whose a node is, and by which gateway it is connected
//	owned_spec what a job is, for the node that owns it
//	attach     who gets the result
//	changes    what a replica's cache has missed; nodes: some by their ids
//	identity   which history the server's data is of
//	cells      how many cells and servers there are
//
// Guarantees: the slots in use on a node never exceed its max_concurrency; an
// attempt ends once, by its owner in the epoch that was given it; every script
// can be repeated without harm, because whoever got an error may still have been
// applied. Scripts compare times with Redis' clock only.
//
// Submit, EnqueueAll and Complete gather concurrent callers: while two calls are under way (up to eight of submits while few
// jobs are there) the next collects, so nobody waits for a batch to fill and a busy cell pays Lua's fixed cost once for many
// jobs. Who submits or completes alone makes the call himself. The jobs that one submit places on a node, and the ends that one call tells a replica of, are one entry of its stream (of 64 KiB and up to one job more).
//
// How scripts run, what happens on NOSCRIPT, and who repeats a call: see package script.
package cell

// Package sim simulates a fleet of replicas and nodes, event by event, on the real code that chooses nodes
// (internal/selection). It tells how often replicas with late views refuse each other's slots (conflicts), how
// long jobs wait against an ideal central scheduler, and how evenly nodes are loaded, for fleets that no test
// machine holds. The same configuration and seed give the same result.
//
// # The model
//
// Each replica has a view: one selection.Node for each node, and its own random source. The truth is one count
// of used slots a node.
//
//	arrival --choose (real), take--> batch --up--> script on the truth --down--> confirm or refuse, next round
//	                                                  |  node became full: event
//	          slot held: overhead + duration <--------+
//	completion on the truth --> reply to the submitting replica alone (slots used now)
//	                        --> node was full: event
//	heartbeat each interval --> event
//
// As in internal/dispatch: a job names up to Candidates nodes, the first of which is taken in the view while
// the call is under way; the answer confirms or corrects the view; a refused job is offered anew without the
// nodes that refused it, up to Rounds times; a job that finds all nodes full offers itself once to nodes that
// seem full. As in internal/cell: two calls of a replica are under way at a time, or eight of few jobs, the next gathers meanwhile. As
// in internal/cache: events of a replica arrive in order; each carries the slots in use and overwrites what
// the view says; after a lost event the next one that comes shows the gap, nothing more is applied, and what
// changed is read from the truth.
//
// What makes conflicts is thus in the model: the time from a slot's taking to the event's arrival elsewhere,
// views of nodes with several slots that are wrong until the next heartbeat, reply or crossing, and replies
// that overtake events or are overtaken by them, which come on other connections.
//
// # Left out
//
// Nodes that come, go or drain; jobs of several slots; several cells; the periodic comparison of revisions
// (with heartbeats another event always shows the gap first); failures of Redis.
//
// # Cost
//
// Views are not shared: a replica has its own selection.Node of each node, since that is what the real code
// reads. 100 replicas of 100,000 nodes take about 1 GiB. What is shared is the log of events: a replica applies
// it, and the replies to it, up to the present when it next looks at its view, so an event costs no place in
// the queue of future events, and one store a replica.
package sim

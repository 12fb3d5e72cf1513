// Package dispatch takes jobs from clients to nodes, and results back:
//
//	submit -> choose candidates from memory -> reserve by one script -> assigned
//	                 ^  refusal with fresh state  |
//	                 +----------------------------+-> enqueue -> waiting -> assigned
//	reply stream of this replica and cell -> outstanding job -> assigned, result
//
// # Placement
//
// A choice is a hint; the reservation decides. A refusal brings the node's fresh state into the
// cache, and the job is offered elsewhere, a few times. Then the fleet counts as full, and the job
// waits in the queue of its class, in one cell. No job overtakes a waiting job of its class: while
// the class has some, jobs are enqueued at once, and that call gives free slots to the head of the
// queue. Only a job that no node could ever run is refused.
//
// All candidates of one choice are of one cell, and the job gets an id of that cell.
//
// A job takes three stages: choose (choose.go), call (call.go) and settle (settle.go). Submit
// repeats them until every job is decided. A placement is one job on that way.
//
// # Loops
//
// A completion hands its slot to the next waiting job by itself. Loops for each cell do the rest.
// Every replica runs them; Redis lets each thing happen once. No job is lost without them.
//
//	match, sweep  free nodes take waiting jobs
//	due           retries, scheduled jobs, deadlines, jobs held back by a limit
//	reap          silent nodes are taken out
//	move          jobs leave a cell that has no fitting node
//	retain        old records are dropped if their bytes are bounded
//	replies       the reply stream is read, renewed and trimmed
//
// A change of the configuration has a fence: a pause is confirmed when everything that began by the
// older configuration is over, on every replica.
//
// # Failure
//
// Calls of different cells run side by side. A cell whose call fails is left out of choices until
// it answers again. So a server that is down takes out its own nodes and nothing else.
//
// A Redis that refuses a call because of its state (a read-only replica, too few replicas, loading)
// has done nothing. The job goes to another cell at once, under another id, and the cell is left
// out for a while even if it answers reads.
//
// Any other failed call may have been applied. The submit is repeated in the same cell under the
// same job id, which is idempotent, until an answer or the submit deadline. The job never goes to
// another cell after that. A submit that fails then says that the job may have been placed.
//
// Replies are hints too; the record is the truth. After a gap in a reply stream, and periodically,
// the records of outstanding jobs are read again, so a client gets its result even if the reply was
// lost. The jobs of a cell that is away stay outstanding until it is back.
package dispatch

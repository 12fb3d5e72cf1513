// Package dispatch takes jobs from clients to nodes and results back:
//
//	submit -> choose candidates from memory -> reserve by one script -> assigned
//	                 ^  refusal with fresh state  |
//	                 +----------------------------+-> enqueue -> waits -> assigned
//	reply stream of this replica and cell -> outstanding job -> assigned, result
//
// A choice is a hint; the reservation decides. A refusal brings the node's fresh
// state into the cache and the job is offered elsewhere, a few times; then the
// fleet is full and the job waits in the queue of its class, in one cell. No job passes
// one of its class that waits there: while some are known to, jobs are enqueued at once,
// and the call that enqueues gives the free slots of the candidates to whoever is first.
// Only jobs that no node could ever run are refused.
//
// A slot that a job frees goes to the next one that waits in the call that completes the
// former. For all else there are loops for each cell: match has free nodes that were heard
// of take jobs that wait, sweep looks for such nodes once a second whatever was heard, due
// ends pauses and deadlines and looks after jobs that a limit holds back, reap takes out
// nodes that fell silent, move brings jobs from a cell without fitting nodes to another
// one, and retain drops old records where their bytes are bounded. Every replica runs
// them; Redis lets each thing happen once. None of them is needed for a job to be kept.
//
// What is paused is taken over behind a fence: a pause is confirmed when everything that
// was begun by the configuration before is over, on every replica that is there.
//
// All candidates of one choice are of one cell, and the job gets an id of that cell.
// The calls of the cells go on side by side. A cell whose call fails is left out of
// choices until it answers again, so a server that is down takes out its own nodes
// and nothing else: a job that was not sent there yet goes to another cell, under
// another id. The replies of a cell wait for no other one: what a reply does not tell is
// read where it came from, and questions to other cells are dropped where too many are
// under way, which costs time but no answer.
//
// A Redis that turns a call away because of its state (it is a read-only replica, has
// too few replicas, is loading, ...) has done nothing: the job goes to another cell at
// once, and the cell is left out of choices for a while although it answers reads.
//
// Any other call that fails leaves open whether it was applied. The submit is
// then repeated in the same cell under the same job id, which the script answers
// without doing it twice, until an answer or the submit deadline. The job never goes
// to another cell after that, not even when all nodes of this one refuse it, and a
// submit that fails then says that the job may have been placed: the first call can
// still be on its way.
//
// Replies are hints too: the record is the truth. After a gap in a reply stream
// and periodically the records of outstanding jobs are read again, so a client
// learns of its result even when the reply was lost. Jobs of a cell that is away
// stay outstanding until it is back.
package dispatch

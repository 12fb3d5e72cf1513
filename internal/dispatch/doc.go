// Package dispatch takes jobs from clients to nodes and results back:
//
//	submit -> choose candidates from memory -> reserve by one script -> assigned
//	                 ^  refusal with fresh state  |
//	                 +----------------------------+
//	reply stream of this replica and cell -> outstanding job -> result
//
// A choice is a hint; the reservation decides. A refusal brings the node's fresh
// state into the cache and the job is offered elsewhere, a few times; then the
// fleet is full and the client is told so.
//
// All candidates of one choice are of one cell, and the job gets an id of that cell.
// The calls of the cells go on side by side. A cell whose call fails is left out of
// choices until it answers again, so a server that is down takes out its own nodes
// and nothing else: a job that was not sent there yet goes to another cell.
//
// A call to Redis that fails leaves open whether it was applied. The submit is
// then repeated in the same cell under the same job id, which the script answers
// without doing it twice, until a definite answer or the submit deadline. After a
// definite refusal the job may go to another cell, under another id.
//
// Replies are hints too: the record is the truth. After a gap in a reply stream
// and periodically the records of outstanding jobs are read again, so a client
// learns of its result even when the reply was lost. Jobs of a cell that is away
// stay outstanding until it is back.
package dispatch

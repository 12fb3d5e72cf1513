// Package dispatch takes jobs from clients to nodes and results back:
//
//	submit -> choose candidates from memory -> reserve by one script -> assigned
//	                 ^  refusal with fresh state  |
//	                 +----------------------------+
//	reply stream of this replica -> outstanding job -> result
//
// A choice is a hint; the reservation decides. A refusal brings the node's fresh
// state into the cache and the job is offered elsewhere, a few times; then the
// fleet is full and the client is told so.
//
// A call to Redis that fails leaves open whether it was applied. The submit is
// then repeated under the same job id, which the script answers without doing it
// twice, until a definite answer or the submit deadline.
//
// Replies are hints too: the record is the truth. After a gap in the reply stream
// and periodically the records of outstanding jobs are read again, so a client
// learns of its result even when the reply was lost.
package dispatch

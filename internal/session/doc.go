// Package session serves clients over WebSocket: the protocol freeslot.v1 of
// docs/protocol.md.
//
// # Goroutines and bounds
//
// A session is three goroutines (reader, writer, keep-alive) and one for each
// request under way. All that is bounded is in [Config]:
//
//	client ──► reader ──► requests under way ──► dispatcher
//	              │        (MaxRequests, MaxRequestBytes)
//	              │ pauses while either side is full: TCP holds the client back
//	              ▼
//	client ◄── writer ◄── outbox ◄── dispatcher (Sink), answers
//	                   (QueueMessages, QueueBytes): full = the client is cut off
//
// The answer to an attach or a cancel may hold a result of megabytes. Only a few are
// asked for at a time, while the outbox is at most half full, and they are added one by
// one as there is room: a client may attach to any number of ended jobs at once.
//
// What the dispatcher calls never waits for a client: it appends to the outbox,
// and the session whose outbox overflows is ended.
//
// # Guarantees
//
// For each job: accepted, then assigned for each of its attempts, then result; accepted
// and result at most once. For an attach: status, then assigned for the attempts that
// begin later, then result. Nothing is ordered between jobs, nor between
// requests. A session that ends loses what was not delivered; the jobs go on, and
// another session can attach to them.
//
// # End of a session
//
// Whoever ends a session gives the order (close code, reason, whether to deliver
// what is queued first); the first order stands. The writer carries it out; if
// that takes longer than CloseTimeout, the connection is cut.
package session

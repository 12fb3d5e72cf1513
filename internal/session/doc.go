// Package session serves clients over WebSocket: the protocol freeslot.v1 of docs/protocol.md.
//
// # Goroutines and bounds
//
// A session is three goroutines (reader, writer, keep-alive) and one for each request under way.
// [Config] has all bounds:
//
//	client ──► reader ──► requests under way ──► dispatcher
//	              │        (MaxRequests, MaxRequestBytes)
//	              │ pauses while either side is full: TCP holds the client back
//	              ▼
//	client ◄── writer ◄── outbox ◄── dispatcher (Sink), answers
//	                   (QueueMessages, QueueBytes): full = the session ends
//
// The answer to an attach or a cancel may hold a result of megabytes. The session asks for a few at
// a time, while the outbox is at most half full, and adds them one by one as there is room. So a
// client may attach to any number of ended jobs at once.
//
// The dispatcher never waits for a client: its calls append to the outbox. If that overflows, the
// session ends.
//
// # Guarantees
//
// For each job: accepted, then assigned for each of its attempts, then result. accepted and result
// come at most once. For an attach: status, then assigned for the attempts that begin later, then
// result. There is no order between jobs, nor between requests.
//
// # Failure
//
// A session that ends loses what was not delivered. Its jobs go on, and another session can attach
// to them.
//
// Anything that ends a session gives an order (close code, reason, whether to deliver the queue
// first). The first order counts. The writer carries it out; after CloseTimeout the connection is
// cut.
package session

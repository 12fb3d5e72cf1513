// Package gateway lets agents reach Redis through a replica: the door /v1/node, where a token says
// which nodes an agent may be. A gateway owns nothing. Whatever an agent asks is fenced in Redis, so a
// gateway that is late, frozen or killed costs a reconnect and never a job.
//
// # Goroutines and bounds
//
// A session is two goroutines (reader, writer) and one for each request under way:
//
//	agent ──► reader ──► requests under way ──► the node's cell
//	                       (256 or 4 MiB; one beyond is refused, heartbeats never)
//	agent ◄── writer ◄── outbox ◄── answers, deliveries of the cell's hub
//	                       (1,024 messages or 4 MiB: full = the session ends)
//
// A hub reads the stream to which the cell's scripts write what is for the nodes behind this gateway.
// It is two goroutines for each cell, one that reads and one that renews and trims the stream. So the
// number of connections to Redis does not depend on the number of agents. One more goroutine has all
// agents pinged, and ends the sessions of tokens that end.
//
// Heartbeats of a session go one after the other. While a few wait, the session reads no further.
//
// # Shared calls
//
// Sessions of a cell share calls (gather): heartbeats that nobody waits for, up to 50 ms or 32 of them;
// and plain ends of jobs, what comes while the call before is under way. Ends that need more, or whose
// node could begin a job that waits, go by a call of their node. What one node's keys or messages spoil
// costs that node's items alone.
//
// # Order
//
// The agent forgets an attempt once a heartbeat that began after its end is answered. A delivery that
// comes later would start it again, which no fence in Redis prevents. Therefore:
//
//   - Nothing is delivered before the first answered heartbeat. What comes earlier waits for it.
//   - A delivery that Redis wrote before a heartbeat was carried out never follows its answer. The
//     session drops it by the time in its id. If the agent has missed it, the answer itself names it.
//
// Answers do not wait behind a burst of deliveries: only few go into the outbox, and the others wait for
// the line (held). Then the same rules hold for them.
//
// # Failure
//
// An agent gets unavailable for whatever the cell did not answer. That may have been carried out, and
// all of it can be repeated. The session goes on while Redis is away. A session that ends takes its
// queue with it: the first heartbeat of the next one names what the agent missed. A stream that is gone
// has lost deliveries: it is opened anew, and all agents of the cell are asked for a heartbeat.
//
// Anything that ends a session gives an order (close code, reason, whether to deliver the queue first).
// The first order counts. The writer carries it out; after closeTimeout the connection is cut.
package gateway

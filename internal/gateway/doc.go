// Package gateway lets agents reach Redis through a replica: the door /v1/node, where a token says
// which nodes an agent may be. A gateway owns nothing. Redis fences every request of an agent, so a
// gateway that is late, frozen or killed costs a reconnect and never a job.
//
// # Goroutines and bounds
//
// A session is two goroutines (reader, writer). Heartbeats and ends of jobs, which are nearly all
// requests, have none of their own: the reader queues them for a shared call, and the call's
// goroutine sends the answers. The ends of a frame are queued together, and its progress messages
// share a goroutine and mostly a call. Other requests have a goroutine each.
//
//	agent ──► reader ──► requests under way ──► the node's cell
//	                       (256 or 4 MiB; one beyond is refused, heartbeats never)
//	agent ◄── writer ◄── outbox ◄── answers, deliveries of the cell's hub
//	                       (1,024 messages or 4 MiB: full = the session ends)
//
// A hub reads the stream to which the cell's scripts write messages for the nodes behind this
// gateway. It is two goroutines for each cell: one reads, one renews and trims the stream. So the
// number of connections to Redis does not depend on the number of agents. One more goroutine pings
// all agents, and ends the sessions whose tokens end or whose nodes do not live.
//
// Heartbeats of a session go one after the other. While a few wait, the session reads no further.
// What a call answers for a session's ends leaves together, in frames of about 16 KiB.
//
// # Shares
//
// The tokens of one name are one owner, and no owner keeps the agents of others out: of each thing
// that a replica has a bounded number of (connections without a hello, places for agents, large
// requests, bytes), an owner has a part, or makes room when it has more than others. See owner and
// line.
//
// # Shared calls
//
// Sessions of a cell share calls (gather):
//
//   - Heartbeats that no one waits for collect for up to 50 ms, at most 32 of them.
//   - Plain ends of jobs collect while the call before them is under way.
//
// Ends that need more, or whose node could begin a waiting job, go in a call for their node alone.
// If one node's keys or messages are broken, only that node's items fail.
//
// # Order
//
// The agent forgets an attempt once a heartbeat that began after its end is answered. A delivery
// that comes later would start it again, which no fence in Redis prevents. Therefore:
//
//   - Nothing is delivered before the first answered heartbeat. Earlier deliveries wait for it.
//   - A delivery that Redis wrote before a heartbeat was carried out never follows its answer. The
//     session drops it by the time in its id. If the agent has missed it, the answer itself names
//     it.
//
// Answers do not wait behind a burst of deliveries: only a few go into the outbox, and the others
// wait for the line (held). The same rules hold for them.
//
// # Failure
//
// If the cell does not answer, the agent gets unavailable. The request may have been carried out;
// every request can be repeated. The session goes on while Redis is away. A session that ends takes
// its queue with it: the first heartbeat of the next one names what the agent missed. A stream that
// is gone has lost deliveries: the hub opens it anew, and asks all agents of the cell for a
// heartbeat.
//
// Anything that ends a session gives an order (close code, reason, whether to deliver the queue
// first). The first order counts. The writer carries it out; after closeTimeout the connection is
// cut.
package gateway

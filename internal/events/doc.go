// Package events delivers changes of nodes to replicas: the wire form of node events, the
// subscription that receives them, and the tracker as a second witness.
//
//	Decode      an event: a change of one node, with its revision     event_codec.go
//	Subscriber  the messages of a cell's channel                      subscriber.go
//	Tracker     notices of writes to profiles, also without a script  tracker.go
//	Watch       the notices of one cell                               watch.go
//
// Scripts of package cell publish one event for each revision. It holds the changed state, so a
// replica applies it without a call to Redis.
//
// # Guarantees
//
//   - Messages arrive in the order of publication. Pub/sub can lose them; after every possible loss
//     there is a token in [Subscriber.Resets]. Revisions have no holes, so the reader also sees a
//     gap.
//   - On a cluster a [Subscriber] listens to the master of the channel's slot, through failovers
//     and slot migrations.
//   - A [Tracker] gets a notice of every write to a node's profile (an operator's HSET or DEL, a
//     flush). If a notice may have been lost, [Watch.Take] returns all.
//   - Queues are bounded. A full queue is replaced by a reset, or by all.
//
// # What happens on failure
//
// A broken connection is replaced, and a refused subscription repeated, with growing pauses up to a
// second. Meanwhile [Subscriber.Subscribed] or [Watch.Connected] returns false. A server that
// cannot track is asked again every half minute; [Watch.Supported] returns false.
package events

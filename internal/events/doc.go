// Package events is how replicas hear of changes: the codec of node events, the
// subscription that delivers them, and the tracker, a second witness.
//
// Scripts of package cell publish one event for each revision, carrying the
// changed state, so that a replica applies it without asking Redis. Pub/sub
// loses messages on a reconnect; whoever applies events must compare revisions,
// which have no holes, and resynchronise after a gap and at each [Subscriber.Resets].
// On a cluster events are sharded, and a [Subscriber] makes sure that it listens to
// the channel's master, through failovers and slot migrations.
//
// What no script announces (an operator's HSET or DEL, a flush) is heard by a
// [Tracker]: Redis tells it of every write to a node's profile, and it hands each
// cell a [Watch] of what to read again. Where a notice can have been lost, the
// Watch says that all may have changed.
package events

// Package events is how replicas hear of changes: the codec of node events and
// the subscription that delivers them.
//
// Scripts of package cell publish one event for each revision, carrying the
// changed state, so that a replica applies it without asking Redis. Pub/sub
// loses messages on a reconnect; whoever applies events must compare revisions,
// which have no holes, and resynchronise after a gap and at each [Subscriber.Resets].
package events

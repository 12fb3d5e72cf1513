// Package pool holds the dynamic configuration of pools, called "phase3": what it may contain, how
// it is changed, and how a replica follows it.
//
// # Where it is
//
// It is in Redis, on the first cell: one JSON document with its version, the index of language
// pairs that follows from it, and the last 100 versions. See internal/cell. One script writes them
// all, by compare-and-set on the version that the caller saw.
//
// # What is in force
//
// Every replica has the same configuration in force. It follows from what is in Redis:
//
//	no document                    "pools" in the replica's own file
//	no document, something paused  the same, with these pauses
//	a valid document               the document, no matter who wrote it
//	anything else                  what was in force before; a problem is reported
//
// "Anything else" is a document that an operator broke by hand: not JSON, another type, an unknown
// key, a bad value, or a version below one that was in force. A replica that starts meanwhile takes
// the newest valid version of the history, or its own file if there is none.
//
// # What is paused
//
// No new job begins on a paused pool, or for a paused service or class. Pauses are part of the
// configuration and of its versions, but have a key of their own. A release that does not know of
// pauses can therefore still read the document, and begins the jobs that are paused. A change that
// does not mention pauses leaves them as they are; every change by such a release is one.
//
// # Order
//
// A replica never goes back to a version below one that it had in force, as long as two things stay
// the same: the counter's generation and the server's history of the data. A flush makes another
// generation. A restart or a failover can lose the last writes, so it makes another history. After
// either, what is in Redis is in force, whatever its version.
//
// # When Redis is away
//
// The last configuration stays in force, and Health says so.
package pool

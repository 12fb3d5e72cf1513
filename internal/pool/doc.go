// Package pool is the dynamic configuration of pools, called "phase3": what it
// may hold, how it is changed, and how a replica follows it.
//
// # Where it is
//
// In Redis, on the first cell: one JSON document with its version, the index of
// language pairs that follows from it, and the last 100 versions; see internal/cell.
// One script writes them all, by compare-and-set on the version that the caller saw.
//
// # What is in force
//
// On every replica the same, a function of what is in Redis:
//
//	no document                    what the replica's own file says in "pools"
//	no document, something paused  the same, but for what is paused
//	a valid document               the document, whoever wrote it
//	anything else                  what was in force before; problem reported
//
// "Anything else" is what an operator broke by hand: not JSON, another type, an
// unknown key, a bad value, a version below one that was in force. A replica that
// starts while it is so takes the newest valid version of the history, and without
// one its own file.
//
// # What is paused
//
// Pools, services and classes of which no new job begins are part of the configuration
// and of its versions, and kept under a key of their own: a release that does not know of them
// reads the document as ever, and begins jobs of what is paused. A change of the document that says
// nothing of them, as all of such a release do, leaves them as they are.
//
// # Order
//
// A replica never goes back to a version below one that it has had in force, as long
// as the counter's generation and the server's history of the data are the same. A
// flush makes another generation; a restart or a failover, where the last writes can
// be lost, another history: what is read then is the truth, whatever its version.
//
// # When Redis is away
//
// The last configuration stays in force and Health says so.
package pool

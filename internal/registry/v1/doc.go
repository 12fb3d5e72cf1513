// Package v1 lets programs that know the registry's first version live beside those of the second.
//
// A Bridge is part of each replica. It follows the services of its share by rendezvous hashing. It
// registers the first version's instances in the second one, marked as copies, and on request
// writes instances of the second version back for old consumers. An instance of the first version
// lives while its score moves: clocks of clients are never compared. All that a bridge remembers
// can be lost: another replica goes on from what Redis has. The first version's keys have no hash
// tags, so each command on them has one key, and there are no scripts.
package v1

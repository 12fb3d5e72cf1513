// Package v1 lets programs that use the registry's first version live beside programs that use the
// second.
//
// A Bridge is part of each replica. It follows the services of its share by rendezvous hashing. It
// registers the first version's instances in the second version, marked as copies. On request it
// also writes instances of the second version back for old consumers. An instance of the first
// version lives while its score moves: clocks of clients are never compared. Everything that a
// bridge remembers may be lost: another replica goes on from what Redis has. The first version's
// keys have no hash tags, so each command has only one key, and there are no scripts.
package v1

// Package source feeds lists from elsewhere: from a URL, a database, another Redis, or a file of
// the replica.
//
// Addresses, credentials and queries are in the replicas' configuration, by name. A list names one,
// so a change of lists makes no replica talk to another address. A run writes an upload and has it
// built, by the same rules as an import.
//
// A run has a lease in Redis, which its replica renews. If the lease lapses, another replica that
// has the source runs it again. All changes of a list's assignment compare it with what was seen,
// so runs never overlap in what they record, and the operation of the import keeps them apart
// beyond that.
package source

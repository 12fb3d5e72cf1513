// Package selection decides which node a job should try first. It is pure: the
// nodes, the job, the time and a seeded source go in, candidates or the reasons
// for having none come out. It knows no Redis, reads no clock, logs nothing and
// starts no goroutine, so every decision can be replayed.
//
// # Parts
//
//	freeslot.Node --Compile--> Profile --NewNode--> Node (profile + live figures)
//	[]*Node, Pools, service, Requirement --NewClass--> Class (candidate lists)
//	Class, Query, Source --Choose--> candidates      --Breakdown--> reasons
//
// A [Class] is rebuilt when a profile or the pools change, never for load: load
// lives in the atomics of each [Node], which all classes share.
//
// # Which nodes fit
//
// A node fits a job when it has the job's service and every further service, is
// a member of the pools to which the job is restricted, handles the job's
// languages and has its labels; [Reason] names the first of these that fails.
//
// Languages are found by the lookup of RFC 4647 section 3.4: the job's tag is
// shortened from its end until the node offers exactly what is left. "de-AT"
// finds "de", "zh-Hant-TW" finds "zh-Hant", but "de" never finds "de-AT". A
// single-letter subtag goes together with the subtag behind it: "de-u-co-phonebk"
// becomes "de-u-co" and then "de". Tags are compared as text: case and the choice
// of '-' or '_' make no difference, deprecated synonyms ("iw" for "he") do.
//
// # Pools
//
// A node is a member of a pool when its profile names the pool, or when it
// satisfies the pool's rule. A job is restricted to pools in two ways:
//
//   - It names one: only that pool's members are candidates, whatever the pool's
//     languages. A pool that is not configured has the nodes that name it.
//   - Otherwise, if it states a language and a configured pool covers it: only
//     members of the covering pools are candidates. A pool covers a job when
//     each language that the job states is found in the pool's list for it; an
//     empty list covers nothing, and the pool's services and labels play no part.
//     The covering pools are tiers in the order of the configuration: a later
//     one is tried only when no earlier one has a node that qualifies. A node in
//     several belongs to the first.
//
// When no configured pool covers the job, all nodes are candidates, in one tier.
// So configuring a pool for a language takes that language away from the nodes
// outside: even if the pool is empty, its jobs do not spill over.
//
// # Choosing
//
// Inside a tier [Class.Choose] draws two nodes at random and takes the less
// loaded of those that qualify. It does not look for the least loaded of all:
// every replica would send its jobs to that same node until their caches noticed.
// Two choices keep the fleet nearly as even, and replicas apart. If none of the
// drawn nodes qualifies it draws a few more times, and then walks the whole tier
// once, so that "none" is the truth about the cached figures.
//
// Load is the slots in use as last heard of, plus the slots that this replica has
// asked for without an answer yet, over the node's capacity. Both are hints: the
// reservation in Redis checks again, and its answer corrects them.
package selection

// Package selection decides which node a job should try first. It is pure: the nodes, the job, the
// time and a seeded source go in; candidates, or the reasons for having none, come out. It does not
// use Redis, read a clock, log or start a goroutine, so every decision can be replayed.
//
// # Parts
//
//	freeslot.Node --Compile--> Profile --NewNode--> Node (profile + live figures)
//	[]*Node, Config, service, Requirement --NewClass--> Class (candidate lists)
//	Class, Query, Source --Choose--> candidates      --Breakdown--> reasons
//	                     --Batch---> groups of jobs
//	the same, for each node of the fleet in words    --Explain--> Explanation
//
// A [Class] is built again when a profile or the configuration changes, but never because of load:
// load is in the atomics of each [Node], which all classes share.
//
// # Guarantees, and what happens on failure
//
//   - All figures are hints. The reservation in Redis checks them again. An old figure costs a
//     refusal, never a slot that is used twice.
//   - "No candidate" is true for the figures as they were: a choice looks at every node before it
//     gives up.
//   - Invalid input is the caller's fault: [Config.Validate] and the validation of jobs and nodes
//     come first. The package returns no errors. It panics only if a caller releases more slots
//     than it took.
//
// # Which nodes fit
//
// A node fits a job if all of this holds. [Reason] names the first condition that fails.
//
//   - It has the job's service and every further service, in the versions asked for.
//   - It is a member of the pools to which the job is restricted.
//   - It handles the job's languages, has its labels and features, and satisfies its label rules.
//
// Languages are found by the lookup of RFC 4647 section 3.4: the job's tag is shortened from its
// end until the node offers exactly what is left. "de-AT" finds "de", and "zh-Hant-TW" finds
// "zh-Hant", but "de" never finds "de-AT". A single-letter subtag is removed together with the
// subtag after it: "de-u-co-phonebk" becomes "de-u-co" and then "de". Tags are compared as text.
// Letter case and the choice of '-' or '_' make no difference, deprecated synonyms ("iw" for "he")
// do.
//
// # Pools
//
// A node is a member of a pool if its profile names the pool, if the pool names the node, or if the
// node satisfies the pool's rule. A job is restricted to pools in two ways:
//
//   - It names a pool: only the pool's members are candidates, for any languages of the pool. A
//     pool that is not configured consists of the nodes that name it.
//   - Otherwise, if it states a language and a configured pool covers it: only members of the
//     covering pools are candidates.
//
// A pool covers a job if each language that the job states is found in the pool's list for it. An
// empty list covers nothing. The pool's services and labels do not matter. The covering pools are
// tiers in the order of the configuration: a later tier is tried only if no earlier one has a
// qualifying node. A node in several pools belongs to the first.
//
// If no configured pool covers the job, all nodes are candidates, in one tier. So a pool that is
// configured for a language takes that language away from the nodes outside of it. Even if the pool
// is empty, its jobs do not spill over.
//
// With [ModeFlat] only the first way remains. A configuration that is not enabled has no pools at
// all.
//
// A preferred pool restricts nothing: its members, if they are allowed, form a tier before all
// others.
//
// # Choosing
//
// The cell is chosen first, because one reservation can only offer nodes of one cell. It is drawn
// with probability in proportion to the free slots of its nodes in the tier; see [Class.Choose].
//
// Within a tier and cell, two nodes are drawn at random, and the less loaded one that qualifies is
// taken. It is not the least loaded of all: every replica would send its jobs to that node until
// their caches noticed. Two draws keep the fleet nearly as even, and keep replicas apart. If none
// of the drawn nodes qualifies, a few more are drawn, and then the whole list is walked once.
// [PolicyBinpack] takes the most loaded of eight instead.
//
// A replica that knows of others has a [Share] of the nodes. It takes a node of its share, unless
// the less loaded of two nodes of the whole fleet would still be less loaded with one more slot
// taken. So replicas, which hear of each other's choices late, seldom look at the same free slot. A
// share never changes which nodes qualify.
//
// Load is the slots in use as last heard, plus the slots that this replica has taken without an
// answer yet, divided by the node's capacity. A node that refuses three times in a row for a reason
// other than being full rests for a while; see [Node.Refused].
//
// # Batches
//
// Jobs of one call that fit the same nodes are placed together by batch sampling (Ousterhout,
// Wendell, Zaharia and Stoica, "Sparrow", 2013), in groups: one node for eight jobs costs Redis
// much less than eight nodes. Cell and tier are chosen as for one job. Nodes are drawn until they
// have room for twice the jobs ([Query].Samples times). The least loaded of them are filled, or
// under [PolicyBinpack] the most loaded. A node has room for half of its free slots, and for at
// least one job: another replica with the same view then still finds the other half. These are not
// the least loaded nodes of all, for the same reason as above.
//
// From a share, nodes with room for all jobs are drawn as well. In the comparison, a node outside
// the share counts with one more slot taken.
//
// # Affinity
//
// A job with an affinity key goes to its key's node by bounded-load consistent hashing (Mirrokni,
// Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016). A key's order of nodes
// is the same at every replica. The job goes to the first of them that qualifies and whose load,
// before the job, is below a bound: [Config].AffinityLoadFactor times the average load, the job
// included, of the nodes that take jobs.
//
// The average is estimated from 32 nodes drawn at random (from all nodes in a smaller tier). Its
// standard error is at most 0.09 of a node's capacity, and 0.035 if the nodes' loads deviate by
// 0.2, so near the bound a key can go either way. After 16 nodes over the bound the job is placed
// like a job without a key. If a cell is skipped, its keys go to their next nodes and come back
// with it.
//
// The order is made by multi-probe consistent hashing (Appleton and O'Reilly, 2015) over points in
// proportion to capacity. Each tier of a class has one ring, made when the first key asks for it.
// Each next node of a key is drawn anew (Chen, Coleman and Shrivastava, "Revisiting Consistent
// Hashing with Bounded Loads", 2021): the neighbour on the ring would get the whole overflow.
package selection

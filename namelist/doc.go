// Package namelist answers whether ids are in lists that operators manage: grey releases, and allow
// and deny lists, of up to 100 million ids. Answers come from the process' own memory, and from
// Redis only if memory cannot decide.
//
//	c, err := namelist.Open(namelist.Config{RedisURL: "redis://lists:6379"})
//	a := c.List("vip").Check(ctx, "user-1")
//	if a.Member(false) { … }
//
// The first check of a list waits until its head and edits are there, for at most
// [Config].Deadline. [List.WaitReady] waits longer, and also for the filter.
//
// [Client.Chain] decides by rules over lists, attributes, percentages and times:
//
//	d := c.Chain("checkout").Evaluate(ctx, namelist.Subject{Key: "user-1"})
//	if d.Outcome == namelist.OutcomeAllow { … }
//
// A process without Redis asks replicas by HTTP: see [Config].URL and Token. What follows about
// Redis applies to replicas, too.
//
// # What is promised
//
// An answer names its version, revision and source, and the time of its data. It equals the answer
// of a map that holds that version's entries, with the list's edits up to that revision. The filter
// only ever says no, and only for the version it was built from. Yes always comes from data that
// has the id.
//
// An answer is unknown, with a reason, and never no, in these cases: the list is unknown, deleted,
// or not loaded; the server is silent or slow; a segment is missing or belongs to another build;
// this release does not know the format; the list cannot have the id, such as an empty one. The
// zero Answer is unknown. The caller says at each call what unknown means: [Answer.Member] has no
// default.
//
// # What is not promised
//
//   - That all clients switch to a new version at the same instant. Each answer names its version.
//   - Expiry more exact than one second.
//   - That a read sees what someone changed by hand inside a segment.
//   - Edits that were acknowledged just before a failover or a power loss.
//
// # When Redis is away
//
// Loaded data goes on to answer. Its age grows, and after three seconds answers are stale. Ids that
// memory cannot decide are unknown within [Config].Deadline.
package namelist

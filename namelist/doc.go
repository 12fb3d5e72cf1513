// Package namelist answers whether ids are in lists that operators manage: grey releases, allow and
// deny lists of up to 100 million ids. Answers come from the process' own memory, and from Redis
// only where memory cannot decide.
//
//	c, err := namelist.Open(namelist.Config{RedisURL: "redis://lists:6379"})
//	a := c.List("vip").Check(ctx, "user-1")
//	if a.Member(false) { … }
//
// The first check of a list waits until its head and edits are there, for at most [Config].Deadline;
// [List.WaitReady] has a program wait for longer, and for the filter.
//
// A process without Redis asks replicas by HTTP: [Config].URL and Token. What is said of Redis
// below holds for them, too.
//
// # What is promised
//
// An answer names version, revision, source and the time of its data. It is what a map of that
// version's entries, with the list's edits up to that revision, says. The filter only ever says no,
// and only for the version it was built from. Yes always comes from data that has the id.
//
// An answer is unknown, with a reason, and never no: for a list that is unknown, deleted, or not
// loaded; from a server that is silent or slow; for a segment that is missing or of another build;
// for a format that this release does not know; for an id that the list cannot have, such as an
// empty one. The zero Answer is unknown. The caller says at each call what unknown means:
// [Answer.Member] has no default.
//
// # What is not promised
//
//   - That all clients switch to a new version in one instant. Each answer names its version.
//   - Expiry closer than one second.
//   - That a read sees what somebody changed by hand inside a segment.
//   - Edits that were acknowledged just before a failover or a power loss.
//
// # When Redis is away
//
// What is loaded goes on to answer, its age grows, and after three seconds answers are stale. Ids
// that memory cannot decide are unknown within [Config].Deadline.
package namelist

// Package schedule runs jobs repeatedly. A schedule says when, by a cron expression with a time
// zone or by an interval, and what, by a job as a template.
//
// A schedule lives in one cell, chosen by its name. Every replica has a loop for each cell; there
// is no leader. Once a second, or when the next run of its own is due, a loop asks the cell in one
// call what is due by Redis' clock. It takes each run through three steps:
//
//	claim    writes the run, and the id of its job, into the schedule's state
//	create   enqueues the job under this id, as any other waiting job
//	advance  records the result in the state, and the time of the next run
//
// Every change of a state compares the state with the one that the change was computed from. So if
// several replicas work on one run, one of them gets each step through. A replica that finds a
// claim continues with it. The claim holds the job's id, and Redis creates a job with that id once.
// A marker makes sure of that even after the job's record is gone; it is kept until the schedule
// has advanced. So a run makes one job, no matter which replica dies between which steps.
// Rendezvous hashing decides which replica goes first; the others follow after two seconds.
//
// If something keeps a job from being created (no node fits, a full queue), it is tried again until
// the schedule's grace is over. Then the run has failed. The schedule's status says so, and later
// runs are not affected.
//
// The rest is pure: [cron.Expression] computes times, and [due] decides what to do about missed
// runs.
package schedule

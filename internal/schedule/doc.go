// Package schedule runs jobs again and again: schedules say when, by cron expressions with
// time zones or by intervals, and what, by a job as a template.
//
// A schedule lives in one cell, by its name. Every replica has a loop for each cell; nobody
// leads. Once a second, or when the next run of its own is due, a loop asks the cell by one
// call what is due by Redis' clock, and takes each run through three steps:
//
//	claim    the run, and the id of its job, are written into the schedule's state
//	create   the job is enqueued as any other that waits, under this id
//	advance  the state tells what became of it, and when the next run is
//
// Every change of a state is a comparison with the one that it was computed from, so of
// several replicas that work on one run one gets each step through. Whoever finds a claim
// goes on with it: the id is the claim's, and Redis creates a job of one id once, also where
// its record is gone again; a marker beside it keeps that until the schedule has advanced. So a run makes one job,
// whichever replica dies between which steps. By rendezvous one replica goes first, the
// others after two seconds.
//
// What keeps a job from being created (no node fits, a full queue) is tried until the
// schedule's grace is over; then the run has failed, which its status tells, and later runs
// are as if nothing had been.
//
// The rest is pure: [Expression] computes times, [due] decides what to do about runs that
// were missed.
package schedule

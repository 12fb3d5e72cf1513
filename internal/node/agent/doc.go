// Package agent is what nodeagent adds to package worker: a configuration, and
// executors that run a job by an HTTP request to a local service or by a command.
//
// An executor turns one attempt of a job into one request or one process. It keeps
// nothing between jobs and repeats nothing by itself: failures of the moment it marks
// by worker.Retryable, and the next attempt can be on any node. What it reads back is
// bounded, and ends with the job: when the job is cancelled, times out or the node stops,
// the request is aborted, and the command's whole process group gets SIGTERM, then SIGKILL
// after its grace.
//
// The configuration can change while the agent runs (Agent.Reload): it is put in force as a
// whole or not at all. An executor that has been replaced lives on until its jobs have ended.
// Services with a check (package check) are offered while that says so.
//
// Failures are *freeslot.JobError with one of the Code constants, or wrap one.
package agent

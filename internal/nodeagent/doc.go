// Package nodeagent is the part of nodeagent outside package worker: the configuration, and executors
// that run a job by an HTTP request to a local service or by a command.
//
// An executor turns one attempt of a job into one request or one process. It keeps nothing between
// jobs and repeats nothing: it marks temporary failures by worker.Retryable, and the next attempt
// can be on any node. It reads a bounded answer, and stops reading when the job ends. If the job is
// cancelled, times out or the node stops, the request is aborted, and the command's whole process
// group gets SIGTERM, then SIGKILL after its grace.
//
// The configuration can change while the agent runs (Agent.Reload). It is applied as a whole or not
// at all. A replaced executor lives on until its jobs have ended. A service with a check (package
// healthcheck) is offered while the check succeeds. A service with announce is also in the registry, for
// programs that call it themselves.
//
// Failures are *freeslot.JobError with one of the Code constants, or wrap one.
package nodeagent

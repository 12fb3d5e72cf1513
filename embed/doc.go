// Package embed is a scheduler's replica in the process of its user. It submits jobs and brings
// their results without a scheduler between the process and Redis.
//
//	r, err := embed.New(embed.Config{RedisURL: "redis://127.0.0.1:6379"})
//	...
//	err = r.Start(ctx)
//	...
//	defer r.Stop(ctx)
//	status, err := r.Run(ctx, freeslot.Job{Service: "tts", Payload: payload})
//
// It is a full replica without HTTP, WebSocket and name lists: it shares the fleet with the other
// replicas, takes out silent nodes, matches waiting jobs with free nodes, runs schedules, and takes
// part in changes of the configuration. It needs the rights of the role "replica" in Redis.
// docs/embed.md says when that pays, and what a process that stalls delays.
//
// It has the methods of package client, so a program changes from one to the other in one line. A
// file that also imports the standard library's embed renames one of the two.
//
// # What is promised
//
// Submit returns a Handle only for a job that was accepted. If no fitting node is free, the job
// waits. If its node is lost, the job is tried again elsewhere. The Handle goes on through all of
// that, and through outages of Redis, until the job has ended: succeeded, failed, cancelled,
// expired by its own TimeoutMS, or dead after Job.MaxAttempts failures.
//
// The jobs do not depend on the process. If it stops or dies, they go on. As long as results are
// kept, Attach gets them by the jobs' ids from any replica. A process that may die before it knows
// an id submits with a Job.IdempotencyKey: the same submit then makes no second job, and gets the
// result of the first.
//
// Giving up does not cancel: if the context of a call or of [Handle.Wait] ends, the job goes on.
// Use [Replica.Cancel].
//
// All methods are safe for concurrent use.
package embed

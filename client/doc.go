// Package client submits jobs to freeslot and brings their results.
//
//	c, err := client.Dial(ctx, "ws://127.0.0.1:7480", client.Options{})
//	...
//	status, err := c.Run(ctx, freeslot.Job{Service: "tts", Payload: payload})
//
// A [Client] holds one WebSocket connection to one replica. If it breaks, or the replica stops, the
// client connects to the next of its URLs and attaches to all jobs that have no result yet. Their
// [Handle]s go on as if nothing had happened, and each gets its result once.
//
// # What is promised
//
// Submit returns a Handle only for a job that was accepted. If no fitting node is free, the job
// waits. If its node is lost, the job is tried again elsewhere. The Handle goes on through all of
// that, until the job has ended: succeeded, failed, cancelled, expired by its own TimeoutMS, or
// dead after Job.MaxAttempts failures.
//
// A submit whose connection broke before the answer fails with code unavailable. The job may still
// have been accepted, so the client does not repeat the submit: that could run the job twice.
// Cancel and Attach are repeated, which is harmless.
//
// Giving up does not cancel: if the context of a call or of [Handle.Wait] ends, the job goes on.
// Use [Client.Cancel].
//
// All methods are safe for concurrent use.
package client

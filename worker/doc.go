// Package worker runs jobs in a Go process: it makes the process a node of a
// freeslot fleet, takes the jobs that schedulers place there, calls the handler
// of their service and reports what came of it.
//
//	w, err := worker.New(worker.Config{
//		RedisURL: "redis://127.0.0.1:7481",
//		Node:     freeslot.Node{ID: "node-1", MaxConcurrency: 4},
//	})
//	if err != nil { … }
//	w.Handle("upper", func(ctx context.Context, job *worker.Job) (any, error) { … })
//	err = w.Run(ctx)
//
// # Guarantees
//
//   - A job has exactly one terminal state. Until it has it, it can be executed
//     several times, on this node and on others: after an error that asks for it,
//     and when a node is lost or stops. Every completion is checked in Redis
//     against the slot's attempt and epoch; one that comes from an attempt which
//     the node no longer owns changes nothing. A handler with effects outside the
//     job should make them repeatable, for instance by Job.ID.
//   - An attempt is started at most once in the life of a process, however often
//     it is delivered (see "Delivery"). The memory behind this holds the 65,536
//     attempts that ended last.
//   - The running handlers never take more than Node.MaxConcurrency slots. A
//     handler that ignores its cancelled context keeps its slots until it
//     returns; jobs that arrive meanwhile wait inside the process, and are handed
//     back after 10 s. Where Redis does not count the handler any more, the node
//     offers as many slots fewer, from 30 s after the cancellation on.
//   - A panic in a handler fails its job and nothing else.
//
// # Errors and next attempts
//
// A handler's error fails the job for good. One that another attempt may mend is
// returned through [Retryable], or [RetryAfter] where the handler knows how long to
// wait: the job is then tried again on any node that fits, until it has failed
// freeslot.Job.MaxAttempts times. A panic is not tried again: it is a mistake in the
// handler, which the next node runs too, and a payload that ends it must not go round
// the fleet. A handler that knows better recovers and returns Retryable.
//
// The end of a node is no failure of its jobs: see Stop below.
//
// # Progress, and handlers that hang
//
// A handler tells how far it is by [Job.Progress]. A job with a ProgressTimeoutMS is for
// handlers that can hang: one that tells nothing for so long has its context cancelled with
// cause [ErrStalled], and the attempt has failed with freeslot.JobErrorStalled, unless it
// returns a result all the same. The failure counts, and the job is tried again. A handler
// that does not return within 30 s of that is given up: its job goes on elsewhere, while its
// slots stay taken here, and the node offers that many fewer until it returns. It may run
// beside the next attempt for as long as it likes.
//
// # An attempt in the process
//
//	            offered by the stream or by a heartbeat's reply
//	                               |
//	(spec not in the entry) ---> waiting ---- cancel asked ------------+
//	                               | slots free                        |
//	                               v                                   v
//	not owned any more <------- running -- returned, panicked ----> finishing <--+
//	context cancelled,             |                                   |         | no answer:
//	result dropped                 +-- cancel asked: context           +---------+ again after
//	      |                            cancelled, handler returns      |           a pause
//	      |                                                            | acknowledged or refused
//	      +----------------------------> settled <---------------------+
//	                                       | a heartbeat and a read that started later are through
//	                                       v
//	                                   forgotten
//
// A job that was asked to be cancelled ends as cancelled when its handler then
// returns an error, and as succeeded when the handler returns a result all the
// same: the work is done and its result is worth more than its absence.
//
// A job can come back to this process as a later attempt while an earlier one still
// runs or is being reported: a retry, or a job that was taken away while the node was
// cut off. Each attempt goes this way by itself; they have nothing in common but the
// job's id, and the later one waits for slots as any job does.
//
// # Heartbeats
//
// One loop sends them, so that no two are under way. Intervals are Config.HeartbeatInterval
// less up to a tenth at random, and the first one is any part of it. A heartbeat brings the
// figures of the collectors when Config.MetadataInterval has passed, when one has changed
// by its threshold, and after Redis was away or had forgotten the node. The others bring
// nothing, and leave in force what was told last. Collectors run apart: one that is slow,
// fails, panics or hangs delays no heartbeat. A program adds its own by [Worker.Collect].
//
// # Changes while it runs
//
// [Worker.Reconfigure] replaces profile and handlers, and [Worker.SetHealthy] takes a service
// out of the profile and puts it back. Running jobs go on with the handler they began with. Jobs of a
// service that the node has had and does not offer any more, which arrive or have not begun, are
// handed back uncounted once Redis knows. A change while Redis is away reaches it afterwards, and
// the last one is told again after a broken connection: a failover may have lost it.
//
// # Delivery
//
// Jobs arrive on the node's dispatch stream; those that take the place of one that has
// ended, with the answer to its report. Both are hints: what the node owns is written in
// Redis, and every heartbeat (every 3 s at most, at once after a lost answer or a
// reconnect) names the attempts that the process holds. The reply says which it owns but
// did not name (they are started) and which it named but does not own (they are stopped).
// So an attempt can arrive twice, and late:
//
//   - A heartbeat that began before an attempt arrived by the stream does not name
//     it, and its reply therefore says "start it". In between, the attempt may
//     have arrived, run and been acknowledged.
//   - An attempt that was started by such a reply has an entry in the stream which
//     a lagging reader sees only later, possibly after the attempt has ended.
//     The same goes for the answer to a report.
//
// Hence an ended attempt is remembered until a heartbeat that started after its
// acknowledgement has been answered, the reports that started before it are through, and,
// unless it came with a report, a read that started after it has reached the end of the
// stream. Cancel requests for attempts that have not been seen are remembered by the same
// rule, at most 4,096 of them, oldest dropped first.
//
// # Failures
//
//   - Redis away: handlers go on; completions are repeated with growing pauses
//     until they are answered; heartbeats are tried until one gets through. If
//     that takes longer than the cell's heartbeat limit, the node may have been
//     given up meanwhile; the first reply then says which handlers to stop. Those of jobs
//     with freeslot.LeaseLossCancel are stopped without waiting for that, with cause
//     [ErrLeaseLost], when no heartbeat has been answered for Config.HeartbeatLimit. Their
//     attempts have failed with freeslot.JobErrorLeaseLost, where the node owns them still.
//   - The node is not known (given up for dead, or Redis lost its data): it registers
//     again under the same epoch, and the heartbeat after that says which handlers to
//     stop, with cause [ErrNotOwned]: their jobs have gone to their next attempts.
//     What such a handler leaves behind is dropped; a completion that is already on
//     its way is answered as stale, and not repeated.
//   - Another process registered the same node: this one stops its handlers and
//     ends with [ErrSuperseded]. [Worker.Done] closes.
//   - Stop: the node takes no new jobs, running ones get Config.StopTimeout, then
//     their context is cancelled with cause [ErrStopping]. One that then returns a
//     result has succeeded; the other jobs are handed back and wait for another node,
//     those that had not begun at once. That counts as no failure, but the next
//     attempt has a new number. The job of a handler that ignores its context is
//     handed back Config.InterruptGrace later, when it is given up: for as long as
//     this process lives, the handler may run beside the next attempt.
//   - The process dies: schedulers notice the silence, or the node's next registration
//     gives up what the dead process held. Its jobs go to their next attempts, and
//     the loss counts as a failure.
package worker

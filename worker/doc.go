// Package worker runs jobs in a Go process. It makes the process a node of a freeslot fleet, takes
// the jobs that schedulers place there, calls the handler of their service and reports the result.
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
//   - A job has exactly one terminal state. Before that it can be executed several times, on this
//     node and on others: after a retryable error, and when a node is lost or stops. Redis checks
//     every completion against the slot's attempt and epoch. A completion of an attempt that the
//     node no longer owns changes nothing. A handler with effects outside the job should make them
//     repeatable, for instance by Job.ID.
//   - An attempt is started at most once in the life of a process, however often it is delivered
//     (see "Delivery"). For that the process remembers the last 65,536 attempts that ended.
//   - The running handlers never take more than Node.MaxConcurrency slots. A handler that ignores
//     its cancelled context keeps its slots until it returns. Jobs that arrive meanwhile wait
//     inside the process, and are handed back after 10 s. If Redis no longer counts the handler,
//     the node offers that many slots fewer, from 30 s after the cancellation on.
//   - A panic in a handler fails its job and nothing else.
//
// # Errors and retries
//
// A handler's error fails the job for good. An error that another attempt may mend is returned
// through [Retryable], or [RetryAfter] when the handler knows how long to wait. The job is then
// retried on any node that fits, until it has failed freeslot.Job.MaxAttempts times. A panic is not
// retried: it is a mistake in the handler, and the next node runs the same handler. A payload that
// causes it must not go round the fleet. A handler may recover and return Retryable instead.
//
// A node that stops does not fail its jobs: see Stop below.
//
// # Progress, and handlers that hang
//
// A handler reports how far it is by [Job.Progress]. Set ProgressTimeoutMS for jobs whose handlers
// can hang. If a handler reports nothing for that long, its context is cancelled with cause
// [ErrStalled]. The attempt fails with freeslot.JobErrorStalled, unless the handler still
// returns a result. The failure counts, and the job is retried. A handler that does not return
// within another 30 s is given up: its job goes on elsewhere, its slots stay taken here, and the
// node offers that many fewer until it returns. It may run beside the next attempt without limit.
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
//	      +-----------------------------> ended <----------------------+
//	                                       | a later heartbeat and a later read have been applied
//	                                       v
//	                                   forgotten
//
// If a job is cancelled and its handler then returns an error, the job ends as cancelled. If the
// handler returns a result instead, the job succeeds, because its work has been finished.
//
// A job can come back to this process as a later attempt while an earlier one still runs or is
// being reported: a retry, or a job that Redis took away while the node could not reach it. The
// attempts are independent. They share only the job's id, and the later one waits for slots like
// any job.
//
// # Heartbeats
//
// One loop sends them, so no two are under way. An interval is Config.HeartbeatInterval less up to
// a tenth at random; the first one is any part of it. A heartbeat brings the figures of the
// collectors when Config.MetadataInterval has passed, when a figure has changed by its threshold,
// and after Redis was away or had forgotten the node. Other heartbeats bring nothing, and the last
// figures stay in force. Collectors run apart: one that is slow, fails, panics or hangs delays no
// heartbeat. A program adds its own by [Worker.Collect].
//
// # Changes while it runs
//
// [Worker.Reconfigure] replaces profile and handlers, and [Worker.SetHealthy] takes a service out
// of the profile and puts it back. Running jobs go on with the handler they began with. Jobs of a
// removed service that arrive or have not begun are handed back uncounted once Redis knows. A
// change during an outage of Redis arrives afterwards. The last change is sent again after a broken
// connection: a failover may have lost it.
//
// # Delivery
//
// Jobs arrive on the node's dispatch stream. When a job ends, the next one arrives with the answer
// to its report. Both only deliver: what the node owns is written in Redis. Every heartbeat (every
// 3 s at most, at once after a lost answer or a reconnect) names the attempts that the process
// holds. The reply names the attempts that the node owns but did not name, which are started, and
// those that it named but does not own, which are stopped. So an attempt can arrive twice, and
// late:
//
//   - A heartbeat that began before an attempt arrived by the stream does not name it, so its reply
//     asks to start it. In between, the attempt may have arrived, run and been acknowledged.
//   - An attempt that such a reply started has an entry in the stream, which a lagging reader sees
//     only later, perhaps after the attempt has ended. The same holds for the answer to a report.
//
// So an ended attempt is remembered until a heartbeat that started after its acknowledgement has
// been answered, the reports that started before are answered, and a read that started after it has
// reached the end of the stream. An attempt that came with a report need not wait for the read.
// Cancel requests for attempts that have not come yet are remembered by the same rule, at most
// 4,096 of them; the oldest is dropped first.
//
// # Behind a gateway
//
// With Config.Gateway the process has no connection to Redis. It has one WebSocket to a replica, by
// which heartbeats, reports and deliveries go; what is larger than 64 KiB goes by HTTP beside it.
// Everything on this page still holds, because Redis still decides. Where it says "Redis does not
// answer", the fault can also be in the gateway, or between the node and the gateway. A gateway
// owns nothing of the node, so another one can take over at any moment:
//
//   - A connection that ends is replaced at once, by one to another address if there are several.
//     So is a connection on which a heartbeat is not answered for an eighth of the heartbeat limit.
//     If the gateway itself answers that Redis is away, the node stays.
//   - Calls whose connection ends are repeated on the next one. A heartbeat through it brings what
//     was missed meanwhile. Anything that still comes by the former connection is void.
//   - The heartbeat limit is the gateway's, whatever Config.HeartbeatLimit is.
//   - Start fails if a gateway refuses the node, and waits while none can be reached. Later the
//     node tries for ever. Its pauses are up to 2 s, up to 30 s while its token is refused, and a
//     minute after a defect of the protocol.
//
// # Failures
//
//   - Redis is away: handlers go on. Completions are repeated with growing pauses until they are
//     answered, and so are heartbeats. After the cell's heartbeat limit the node may have been
//     reaped; the first reply then names the handlers to stop. Handlers of jobs with
//     freeslot.LeaseLossCancel do not wait for that: they are stopped with cause [ErrLeaseLost]
//     when no heartbeat has been answered for Config.HeartbeatLimit. If the node still owns their
//     attempts, these fail with freeslot.JobErrorLeaseLost.
//   - Redis does not know the node (it was reaped, or Redis lost its data): the node registers
//     again under the same epoch. The heartbeat after that names the handlers to stop, with cause
//     [ErrNotOwned]: their jobs have gone to their next attempts. The result of such a handler is
//     dropped. A completion that is already on its way is answered as stale, and not repeated.
//   - Another process registered the same node: this one stops its handlers and ends with
//     [ErrSuperseded]. [Worker.Done] closes.
//   - Stop: the node takes no new jobs, and hands back those that have not begun. Running jobs get
//     Config.StopTimeout; then their context is cancelled with cause [ErrStopping]. A handler that
//     then returns a result has succeeded. The other jobs are handed back and wait for another
//     node. That is not a failure, but the next attempt has a new number. If a handler ignores its
//     context, its job is handed back Config.InterruptGrace later. The handler may then run beside
//     the next attempt while this process lives.
//   - The process dies: schedulers notice the silence, or the node's next registration gives up the
//     dead process' attempts. Its jobs go to their next attempts, and the loss counts as a failure.
package worker

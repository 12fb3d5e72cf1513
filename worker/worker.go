package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/slot"
)

// Reasons that end a worker or a handler's context (see context.Cause).
var (
	// ErrSuperseded ends a worker whose node another process has registered. It is also the cause
	// of its handlers' cancelled contexts.
	ErrSuperseded = errors.New("worker: another process has registered this node, each needs a node id of its own")
	// ErrNotOwned is the cause if the node no longer owns the job: the node was reaped, or the job
	// has ended in another way. The result will be dropped.
	ErrNotOwned = errors.New("worker: the node does not own this job any more")
	// ErrCancelled is the cause if a client cancelled the job, and if its deadline has passed.
	ErrCancelled = errors.New("worker: the job was cancelled")
	// ErrStopping is the cause if the worker stops and the job's time is up. The job is handed
	// back, and begins again elsewhere, unless the handler returns a result within
	// Config.InterruptGrace.
	ErrStopping = errors.New("worker: the node is stopping")
	// ErrStalled is the cause if the handler has reported no progress for the job's
	// ProgressTimeoutMS. The attempt has failed, unless the handler returns a result.
	ErrStalled = errors.New("worker: the handler reported no progress in time")
	// ErrLeaseLost is the cause, for a job whose OnLeaseLoss is cancel, if Redis has not answered
	// for the heartbeat limit. The job may be running elsewhere by then.
	ErrLeaseLost = errors.New("worker: the node has lost its lease, because Redis cannot be reached")
	// ErrStopped is returned by Start once the worker has been started or stopped.
	ErrStopped = errors.New("worker: started or stopped before")
)

const (
	// callTimeout bounds one call to Redis.
	callTimeout = 2 * time.Second
	// drainingTimeout bounds how long a job that is handed back waits for the heartbeat by which
	// Redis learns that the node stops.
	drainingTimeout = time.Second
	// reportTimeout bounds, while stopping, the reports of interrupted jobs.
	reportTimeout = 2 * time.Second
)

// Job is a job as a handler sees it. It belongs to the handler.
type Job struct {
	ID     string
	Tenant string
	// Service is the service for which the handler was registered.
	Service string
	// Attempt is the number of the try, from 1; with ID it names this execution. It also counts
	// tries that a node lost, handed back or never began.
	Attempt     int
	Payload     json.RawMessage
	Requirement freeslot.Requirement
	// Slots is the share of the node's capacity that the job takes, at least 1.
	Slots int

	report func(value json.RawMessage) // reports progress; nil for a Job that a program made itself
}

// HandlerFunc runs one job. Its result becomes the job's: a json.RawMessage unchanged, anything
// else by json.Marshal. An error fails the job, for good unless Retryable or RetryAfter has marked
// it. An error that is or wraps a *freeslot.JobError keeps its code, any other gets
// freeslot.JobErrorHandler. A panic fails the job for good, too.
//
// ctx carries the span of the job. It is cancelled when the job is cancelled or its deadline has
// passed, when the node no longer owns the job, and when the worker stops. Where the job asks for
// it, it is also cancelled after too long a time without progress or without Redis. context.Cause
// has the reason. A handler should then return soon: one that goes on may run beside the job's next
// attempt on another node. Handlers run concurrently, each in a goroutine of its own.
type HandlerFunc func(ctx context.Context, job *Job) (result any, err error)

// Worker is one node. Its methods are safe for concurrent use, except that Handle
// goes before Start. A worker is started at most once.
type Worker struct {
	cfg     Config
	log     *zap.Logger
	metrics *metrics
	tracer  trace.Tracer
	profile *profile
	// registerer carries the label of the node; nil without one.
	registerer prometheus.Registerer

	// open is openStore; tests replace it by a fake cell.
	open       func(context.Context) (store, func(context.Context) error, error)
	opened     attemptRegisterer // holds the metrics of the store
	starts     *logging.Attempts // attempts of connect
	closeStore func(context.Context) error
	store      store
	epoch      cell.Epoch
	ledger     *ledger
	slots      *slot.Slots
	figures    *collector.Runner // set by start
	progress   *progress
	// limit is the heartbeat limit; set by start. stopGrace is the constant, except in tests.
	limit, stopGrace time.Duration
	// renewals holds the time of the last answered heartbeat, until the lease loop has seen it.
	renewals chan time.Time

	// latency is the duration of the last heartbeat, in ns; 0 if unknown.
	latency atomic.Int64
	// turned is the time of the heartbeat loop's last turn, by the monotonic clock: a change of the
	// machine's time does not make the loop seem stuck. It is nil while the loop does not run.
	turned atomic.Pointer[time.Time]
	// beatNow holds a token if a heartbeat is due before the interval ends.
	beatNow chan struct{}
	// reading cancels the dispatch read under way; see readAgain.
	reading atomic.Pointer[context.CancelCauseFunc]
	// position is the last dispatch entry that the worker has taken in.
	position atomic.Pointer[string]
	// trimmed is the position that the last answered heartbeat named. beats counts the answered
	// heartbeats until looked is true, after the look for schedulers. Both belong to the heartbeat
	// loop.
	trimmed string
	beats   int
	looked  bool
	// draining is closed, by the heartbeat loop, once no more jobs are placed here.
	draining chan struct{}

	// life bounds the reports of ended jobs; the loops end before it.
	life    context.Context
	endLife context.CancelFunc
	// attempts counts held attempts and the watchers of their handlers. handling counts handlers;
	// the worker does not wait for a handler that ignores its context.
	attempts sync.WaitGroup
	handling atomic.Int64
	// withheld counts the slots of handlers that were given up and have not returned. registered is
	// the number of slots in the last registration, 0 if Redis does not know the node. It belongs
	// to the heartbeat loop once that runs.
	withheld   atomic.Int64
	registered int

	mu    sync.Mutex // guards state and fatal
	state state
	fatal error

	stop    chan struct{} // closed: drain and end
	hurry   chan struct{} // closed: do not wait for running handlers
	failed  chan struct{} // closed: fatal is set
	abandon chan struct{} // closed: do not wait for interrupted handlers either
	done    chan struct{} // closed: ended
	stopErr error         // set before done is closed

	stopOnce, hurryOnce sync.Once
	// leaving is set, before stop is closed, if Leave stops the worker.
	leaving atomic.Pointer[leaving]
}

type state uint8

const (
	idle state = iota
	started
	ended
)

// New checks the configuration. It does no I/O.
func New(cfg Config) (*Worker, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	var reg prometheus.Registerer
	if cfg.Registerer != nil {
		reg = prometheus.WrapRegistererWith(prometheus.Labels{"node": cfg.Node.ID}, cfg.Registerer)
	}
	m, err := newMetrics(reg)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if cfg.Gateway != "" {
		if m.gateway, err = gatewayclient.NewMetrics(reg); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	starts, quiet := logging.NewAttempts(cfg.Logger, "node.connect_failed", "node.connected")
	cfg.Logger = quiet
	w := &Worker{
		cfg:      cfg,
		starts:   starts,
		log:      cfg.Logger.With(zap.String(logging.FieldNode, cfg.Node.ID)),
		metrics:  m,
		tracer:   cfg.TracerProvider.Tracer("github.com/freeslot/freeslot/worker"),
		profile:  newProfile(cfg.Node),
		ledger:   newLedger(context.Background(), cfg.Node.MaxConcurrency),
		slots:    slot.New(cfg.Node.MaxConcurrency),
		beatNow:  make(chan struct{}, 1),
		renewals: make(chan time.Time, 1),
		progress: newProgress(cfg.ProgressInterval, m),

		stopGrace: stopGrace,

		draining: make(chan struct{}),
		stop:     make(chan struct{}),
		hurry:    make(chan struct{}),
		failed:   make(chan struct{}),
		abandon:  make(chan struct{}),
		done:     make(chan struct{}),
	}
	w.registerer = reg
	w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
		if reg == nil {
			return w.openStore(ctx, nil)
		}
		return w.openStore(ctx, &w.opened)
	}
	w.opened.Registerer = reg
	w.position.Store(new(string))
	return w, nil
}

// Handle makes fn the handler of a service and adds the service to the node's profile if it is not
// there. It panics, like http.ServeMux, on mistakes in the program: an invalid name, a nil fn, a
// second handler for a service, and any call after Start.
func (w *Worker) Handle(service string, fn HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := freeslot.ValidateName("service", service); err != nil {
		panic(fmt.Sprintf("worker: Handle: %v", err))
	}
	switch {
	case fn == nil:
		panic("worker: Handle: nil handler for " + service)
	case w.profile.handlers[service] != nil:
		panic("worker: Handle: second handler for " + service)
	case w.state != idle:
		panic("worker: Handle after Start: " + service)
	}
	handlers := maps.Clone(w.profile.handlers)
	if handlers == nil {
		handlers = make(map[string]HandlerFunc)
	}
	handlers[service] = fn
	w.profile.set(withService(w.profile.node, service), handlers)
}

// Start connects to Redis, registers the node under a new epoch and starts to take jobs. While
// Redis or the gateway cannot be reached, Start logs that, tries again, and returns when the node
// is registered: give ctx a deadline, or set Config.ExitUnreachable, to get an error instead. ctx
// bounds the start only. Stop ends a Start that waits. A worker that failed to start has ended.
//
// Start takes the node over from any other process that has registered it. That process ends with
// ErrSuperseded.
func (w *Worker) Start(ctx context.Context) error {
	w.mu.Lock()
	if w.state != idle {
		w.mu.Unlock()
		return ErrStopped
	}
	w.state = started
	w.mu.Unlock()
	err := w.start(ctx)
	if err != nil {
		w.mu.Lock()
		w.state = ended
		w.mu.Unlock()
		close(w.done)
	}
	return err
}

func (w *Worker) start(ctx context.Context) error {
	if err := w.profile.node.Validate("node"); err != nil { // again, because Handle has added to it
		return err
	}
	if err := w.cfg.checkThresholds(); err != nil {
		return err
	}
	var err error
	if w.figures, err = collector.New(w.cfg.Collectors, w.log, w.registerer); err != nil {
		return fmt.Errorf("collectors: %w", err)
	}
	select {
	case <-w.beatNow: // from an earlier SetHealthy; the registration brings that
	default:
	}
	if err := w.connect(ctx); err != nil {
		return err
	}
	w.life, w.endLife = context.WithCancel(context.Background())
	go w.supervise()
	return nil
}

func (w *Worker) register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	w.profile.doubted.Store(false)
	node, number := w.profile.current()
	node.MaxConcurrency = max(w.offers(), 1) // a node that offers no slot is draining
	reg, err := w.store.Register(ctx, node, w.epoch)
	if err != nil {
		w.doubt()
		return fmt.Errorf("register node %s: %w", w.cfg.Node.ID, err)
	}
	if w.limit == 0 {
		w.limit = reg.HeartbeatLimit
	}
	level := zap.InfoLevel
	if node.MaxConcurrency == w.registered {
		level = zap.DebugLevel // the change, if any, is logged at its origin
	}
	w.log.Log(level, "node.registered", zap.String("epoch", w.epoch), zap.Int("max_concurrency", node.MaxConcurrency))
	w.registered = node.MaxConcurrency
	w.profile.reached(number)
	if len(reg.Lost) > 0 {
		w.log.Warn(
			"node.jobs_lost", zap.Strings("job_ids", reg.Lost),
			zap.String(logging.FieldReason, "the node's earlier process left them unfinished"),
		)
	}
	return nil
}

// unregister takes the node out again after a registration without an answer. Redis may have
// carried the registration out, and would then place jobs on the node until it is reaped. If Redis
// has answered, or lacks the script, it has not carried it out: unregister would then only wait for
// the scripts once more.
func (w *Worker) unregister(cause error) error {
	if errors.As(cause, new(*rueidis.RedisError)) || errors.As(cause, new(*freeslot.Error)) ||
		errors.Is(cause, cell.ErrNotSent) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := w.store.Deregister(ctx, w.cfg.Node.ID, w.epoch)
	if err != nil && !errors.Is(err, cell.ErrSuperseded) { // which means that the node belongs to another process
		return fmt.Errorf("deregister node %s: %w", w.cfg.Node.ID, err)
	}
	return nil
}

// Stop ends the worker. It takes no new jobs, lets the running ones go on for Config.StopTimeout or
// until ctx ends, interrupts the rest and takes the node out of the fleet. Interrupted jobs, and
// those that had not begun, are handed back: they wait for another node, and it does not count as a
// failure. An interrupted handler that returns a result has done its job. If a handler does not
// return within Config.InterruptGrace, its job is handed back too, so the handler may still be
// running when the next attempt begins.
//
// Stop outlasts ctx by at most Config.InterruptGrace and some seconds of bounded calls to Redis. It
// may be called at any time, repeatedly and concurrently. It waits for a Start that is under way,
// or ends one that waits for Redis. Every call returns when the worker has ended. The error lists
// what was left undone.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	if w.state == idle {
		w.state = ended
		close(w.done)
	}
	w.mu.Unlock()
	w.stopOnce.Do(func() { close(w.stop) })
	var limit <-chan time.Time
	if w.leaving.Load() != nil {
		limit = time.After(w.cfg.StopTimeout)
	}
	select {
	case <-w.done:
		return w.stopErr
	case <-ctx.Done():
	case <-limit:
	}
	w.hurryOnce.Do(func() { close(w.hurry) })
	<-w.done
	return w.stopErr
}

// Run starts the worker, waits until ctx ends or the worker does, and stops it. It returns nil only
// when ctx ended it and nothing was left undone.
func (w *Worker) Run(ctx context.Context) error {
	if err := w.Start(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-w.done:
	}
	return errors.Join(w.Err(), w.Stop(context.WithoutCancel(ctx)))
}

// Done returns a channel that is closed when the worker has ended: stopped, failed to start, or
// superseded.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Err returns the reason for which the worker ended by itself, at present only ErrSuperseded. It
// returns nil while the worker runs and after Stop.
func (w *Worker) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fatal
}

// fail ends the worker for an error of its own.
func (w *Worker) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fatal == nil {
		w.fatal = err
		close(w.failed)
	}
}

// supervise starts the loops, and ends them and the attempts.
func (w *Worker) supervise() {
	defer close(w.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){w.heartbeats, w.dispatches, w.leases, w.progresses} {
		loops.Go(func() { loop(ctx) })
	}
	// Apart from the other loops, because a collection that does not end holds it up for a moment.
	var collecting sync.WaitGroup
	collecting.Go(func() { w.figures.Run(ctx) })

	select {
	case <-w.stop:
		w.drain()
	case <-w.failed:
	}
	cancel()
	loops.Wait()
	w.ledger.close()
	if w.Err() != nil {
		w.supersede()
	}
	w.endLife()
	w.attempts.Wait()
	collecting.Wait()
	w.stopErr = w.leave()
}

// requestBeat makes the heartbeat loop beat at once; requests coalesce.
func (w *Worker) requestBeat() { notify(w.beatNow) }

// notify puts a token into a channel with room for one, unless it has one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// closeOnce closes a channel unless it is closed. Calls for one channel must not be concurrent.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

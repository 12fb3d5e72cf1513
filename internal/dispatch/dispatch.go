package dispatch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/puzpuzpuz/xsync/v3"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// Defaults of Config.
const (
	DefaultSubmitTimeout   = 3 * time.Second
	DefaultRecheckInterval = 5 * time.Second
	DefaultCandidates      = 2
	DefaultRounds          = 4

	fetchLimit = 16
)

// Config is how a dispatcher behaves. The zero value of each field but Replica
// means its default.
type Config struct {
	// Replica names this process: its reply stream carries the name. It must be
	// unique among the replicas that run.
	Replica string
	// SubmitTimeout bounds the attempts to place one job.
	SubmitTimeout time.Duration
	// RecheckInterval is how long a job may be outstanding before its record is
	// read again, and how often from then on.
	RecheckInterval time.Duration
	// Candidates is how many nodes one reservation offers the job to.
	Candidates int
	// Rounds is how many reservations may be refused before the fleet counts as full.
	Rounds int
}

// WithDefaults returns c with zero fields replaced.
func (c Config) WithDefaults() Config {
	if c.SubmitTimeout == 0 {
		c.SubmitTimeout = DefaultSubmitTimeout
	}
	if c.RecheckInterval == 0 {
		c.RecheckInterval = DefaultRecheckInterval
	}
	if c.Candidates == 0 {
		c.Candidates = DefaultCandidates
	}
	if c.Rounds == 0 {
		c.Rounds = DefaultRounds
	}
	return c
}

// Validate names the first bad field.
func (c Config) Validate() error {
	if err := freeslot.ValidateName("replica", c.Replica); err != nil {
		return err
	}
	if c.Candidates > cell.MaxCandidates {
		return fmt.Errorf("candidates is %d, expected at most %d", c.Candidates, cell.MaxCandidates)
	}
	return nil
}

// Sink is who waits for a job: a session or an HTTP request. Sinks are told apart
// by ==, so they are pointers. The methods must not block and must not call the
// dispatcher. For one job they are called one after the other.
type Sink interface {
	// Assigned is called once for each accepted job, before its Result.
	Assigned(a Assignment)
	// Result is called at most once, with a terminal state.
	Result(s freeslot.JobStatus)
	// Detached is called instead of Result when somebody else attached to the job.
	Detached(jobID string)
}

// Assignment says which node a job went to.
type Assignment struct {
	JobID        string
	Node         string
	Attempt      int
	AssignedAtMS int64
}

// Request is one job to place. The tenant and the job must be valid.
type Request struct {
	Tenant string
	Job    *freeslot.Job
}

// Dispatcher places jobs and brings their results. It is safe for concurrent use.
type Dispatcher struct {
	cfg     Config
	cell    *cell.Cell
	cache   *cache.Cache
	log     *zap.Logger
	metrics *metrics

	outstanding *xsync.MapOf[string, *waiter]
	sources     sync.Pool // *selection.Source, one a goroutine
	read        position  // in the reply stream
	// short is true while Redis is so full that it takes no new jobs; see watchMemory.
	short atomic.Bool
	// fetches bounds the results that are read from their records at once.
	fetches chan struct{}
	// page is how many records one recheck reads; owned by keepReplies.
	page int

	start    sync.Once
	startErr error // set within start
	running  bool  // set within start: there are loops, and a reply stream
	stop     sync.Once
	ctx      context.Context
	cancel   context.CancelFunc
	loops    sync.WaitGroup
}

// New makes a dispatcher. It does no I/O. reg may be nil.
func New(cfg Config, cl *cell.Cell, ca *cache.Cache, log *zap.Logger, reg prometheus.Registerer) (*Dispatcher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Dispatcher{
		cfg: cfg, cell: cl, cache: ca, log: log,
		outstanding: xsync.NewMapOf[string, *waiter](),
		sources:     sync.Pool{New: func() any { return selection.NewSource(rand.Uint64()) }},
		fetches:     make(chan struct{}, fetchLimit),
		page:        cell.MaxPage,
		ctx:         ctx, cancel: cancel,
	}
	d.metrics = newMetrics(d, reg)
	return d, nil
}

// Replica is the name of this replica.
func (d *Dispatcher) Replica() string { return d.cfg.Replica }

// Outstanding is the number of jobs whose results somebody here waits for.
func (d *Dispatcher) Outstanding() int { return d.outstanding.Size() }

// Start opens the reply stream and begins to read it. ctx bounds the opening only.
// After an error nothing runs and the dispatcher cannot be started any more.
func (d *Dispatcher) Start(ctx context.Context) error {
	d.start.Do(func() {
		if d.startErr = d.cell.OpenReplies(ctx, d.cfg.Replica); d.startErr != nil {
			return
		}
		d.running = true
		d.loops.Add(2)
		go func() { defer d.loops.Done(); d.readReplies() }()
		go func() { defer d.loops.Done(); d.keepReplies() }()
	})
	return d.startErr
}

// Stop ends the loops and gives the reply stream up: results that come later stay
// in their records, and jobs that come later are refused. It tolerates a dispatcher
// that was never started, and being called twice.
func (d *Dispatcher) Stop(ctx context.Context) error {
	var err error
	d.start.Do(func() {}) // what is stopped before its Start never starts
	d.stop.Do(func() {
		d.cancel()
		d.loops.Wait()
		if d.running {
			err = d.cell.CloseReplies(ctx, d.cfg.Replica)
		}
	})
	return err
}

// Cancel asks the job's node to stop it; tenant "" stands for any. The error is a
// *freeslot.Error.
func (d *Dispatcher) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cell.Cancel(ctx, tenant, jobID)
	return s, d.coded("cancel", err)
}

// Job reads a job's record; as Cancel.
func (d *Dispatcher) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cell.Job(ctx, tenant, jobID)
	return s, d.coded("read job", err)
}

// Jobs lists jobs; see cell.Jobs. The error is a *freeslot.Error.
func (d *Dispatcher) Jobs(ctx context.Context, f cell.JobFilter, cursor string, limit int) (cell.JobPage, error) {
	page, err := d.cell.Jobs(ctx, f, cursor, limit)
	return page, d.coded("list jobs", err)
}

// coded is the function coded, and logs what the caller is not told.
func (d *Dispatcher) coded(what string, err error) error {
	d.logFailure(what, err)
	return coded(what, err)
}

func (d *Dispatcher) logFailure(what string, err error) {
	var known *freeslot.Error
	if err != nil && !errors.As(err, &known) && !errors.Is(err, context.Canceled) && !errors.Is(err, cell.ErrStopped) {
		d.log.Warn("redis.call_failed", zap.String("operation", what), zap.Error(err))
	}
}

// coded makes every error a *freeslot.Error: what is not one already says that
// Redis could not be asked.
func coded(what string, err error) error {
	var known *freeslot.Error
	var answer *rueidis.RedisError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case strings.Contains(err.Error(), "OOM "):
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
			Message: what + ": Redis is out of memory",
		}
	case errors.Is(err, cell.ErrStopped):
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: what + ": this replica is stopping", RetryAfter: retryAfter()}
	case errors.As(err, &answer):
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: what + ": Redis answered with an error", RetryAfter: retryAfter()}
	default:
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: what + ": Redis did not answer", RetryAfter: retryAfter()}
	}
}

// retryAfter is spread, so that clients that were refused together do not come
// back together.
func retryAfter() time.Duration {
	return 200*time.Millisecond + rand.N(300*time.Millisecond)
}

package dispatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch/presence"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/selection"
)

// Defaults of Config.
const (
	DefaultSubmitTimeout   = 3 * time.Second
	DefaultRecheckInterval = 5 * time.Second
	DefaultCandidates      = 2
	DefaultRounds          = 4
	DefaultSweepInterval   = time.Second
	DefaultReplyBlock      = 5 * time.Second
	DefaultMoveGrace       = 10 * time.Second
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
	// Rounds is how many reservations may be refused before the fleet counts as full and
	// the job waits.
	Rounds int
	// SweepInterval is how often free nodes are sought for the jobs that wait, whatever
	// was heard of either. It varies by a quarter.
	SweepInterval time.Duration
	// ReplyBlock is how long one read of the reply stream waits for news.
	ReplyBlock time.Duration
	// MoveGrace is how long a cell must have been without a node that fits for its jobs to go to
	// another one; below 0 they never do.
	MoveGrace time.Duration
	// Weight is a tenant's share beside others whose jobs wait for the same nodes, from 1.
	// It must not block. nil means 1 for all.
	Weight func(tenant string) int
	// Rates are the submit rates of the tenants that have one.
	Rates map[string]cell.Rate
	// Limits are those of a tenant. It must not block. nil means none for all.
	Limits func(tenant string) Limits
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
	if c.SweepInterval == 0 {
		c.SweepInterval = DefaultSweepInterval
	}
	if c.ReplyBlock == 0 {
		c.ReplyBlock = DefaultReplyBlock
	}
	if c.MoveGrace == 0 {
		c.MoveGrace = DefaultMoveGrace
	}
	if c.Weight == nil {
		c.Weight = func(string) int { return 1 }
	}
	if c.Limits == nil {
		c.Limits = func(string) Limits { return Limits{} }
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
	// Assigned is called for each attempt that begins, in order: the first one is told at
	// once unless the job waits, or never if it ends before. One of which the reply was
	// lost may be left out.
	Assigned(a Assignment)
	// Progress is called with what the handler of a begun attempt told, each time something
	// later; not with everything that it told.
	Progress(jobID string, p freeslot.Progress)
	// Result is called at most once, with a terminal state; nothing comes after it.
	Result(s freeslot.JobStatus)
	// Detached is called instead of Result when somebody else attached to the job.
	Detached(jobID string)
}

// Attacher is a Sink that wants to know, in order with its other news, when an Attach has made it the one that
// waits: a Detached of before, also while that Attach was under way, counts no more.
type Attacher interface {
	Sink
	Attached(jobID string)
}

// Leaver is a Sink whose holder may go elsewhere before its submits are decided. When Life has ended it gets no jobs any more
// that its idempotency keys name: it may have submitted or attached elsewhere, and would lose them to a sink that nobody reads.
type Leaver interface {
	Sink
	Life() context.Context
}

// left reports whether the sink's holder has gone elsewhere.
func hasLeft(sink Sink) bool {
	l, ok := sink.(Leaver)
	return ok && l.Life().Err() != nil
}

// Accepted is what is known of a job once it is kept in Redis.
type Accepted struct {
	// JobID is that of an earlier job when the idempotency key belongs to it: its result
	// comes to the sink, and no assignment that was before.
	JobID string
	// Position is the job's place in the queue of its class, from 1; 0 when it does not
	// wait, is for later or is held back by a limit.
	Position int
}

// Assignment says which node a job went to, for which of its attempts, from 1.
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
	// Unlimited is true for a job that the tenant's submit rate is not for: one that an
	// operator submits again.
	Unlimited bool
	// Run is set for the job of a schedule.
	Run *Run
}

// Dispatcher places jobs and brings their results. It is safe for concurrent use.
type Dispatcher struct {
	cfg     Config
	cells   *cell.Set
	nodes   Nodes
	log     *zap.Logger
	sampled *zap.Logger // sampled
	metrics *metrics
	clients []*client // by cell
	// short are the cells whose Redis takes no new jobs for lack of memory, and every
	// is all cells.
	outOfMemory cellSet
	allCells    selection.CellMask
	// bare are the cells whose Redis has too few replicas for a job to count as accepted.
	lackReplicas cellSet
	// failing are the cells whose last submit or sign of life failed. Other than
	// Nodes.Skip it can have all of them; it leaves none out of choices.
	failing cellSet
	// queued are the cells of which some class is known to have jobs that wait.
	queued cellSet
	// share are the nodes that this replica is the first to match with jobs that wait;
	// nil is all of them.
	share atomic.Pointer[selection.Share]

	// buckets are of the tenants with a submit rate; the map is immutable. known is how many
	// replicas run.
	buckets      map[string]*bucket
	replicaCount atomic.Int64

	// fence tells when nothing goes by an older configuration any more; configs has a token
	// when there is another one, and followed is the last one of which that was said.
	fence    fence
	configs  chan struct{}
	followed atomic.Pointer[selection.Config]
	presence *presence.Store

	classCells classCellsCache
	sources    sync.Pool // *selection.Source, one a goroutine

	start    sync.Once
	startErr error // set within start
	running  bool  // set within start: there are loops, and reply streams
	stop     sync.Once
	ctx      context.Context
	cancel   context.CancelFunc
	loops    sync.WaitGroup
}

// New makes a dispatcher. It does no I/O. reg may be nil. nodes has no other dispatcher.
func New(cfg Config, cells *cell.Set, nodes Nodes, log *zap.Logger, reg prometheus.Registerer) (*Dispatcher, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("dispatch: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Dispatcher{
		cfg: cfg, cells: cells, nodes: nodes, log: log, sampled: logging.Sampled(log),
		sources: sync.Pool{New: func() any { return selection.NewSource(rand.Uint64()) }},
		configs: make(chan struct{}, 1), presence: presence.NewStore(cells.At(0).Runner()),
		ctx: ctx, cancel: cancel,
	}
	d.metrics = newMetrics(d, reg)
	for _, c := range cells.All() {
		d.clients = append(d.clients, newClient(d, c))
		d.allCells = d.allCells.With(c.Index())
	}
	d.buckets = newBuckets(d, cfg.Rates)
	nodes.OnFree(d.nodeFreed)
	cells.SetGuide(d.guide())
	return d, nil
}

// SetReplicas says which replicas run, this one among them, each named once: of several
// that hear of a free node one goes first to match it with jobs that wait. Until it is
// called, this one is alone.
func (d *Dispatcher) SetReplicas(names []string) {
	d.share.Store(selection.NewShare(d.cfg.Replica, names))
	d.replicaCount.Store(int64(len(names)))
}

// Replica is the name of this replica.
func (d *Dispatcher) Replica() string { return d.cfg.Replica }

// Outstanding is the number of jobs whose results somebody here waits for.
func (d *Dispatcher) Outstanding() int {
	n := 0
	for _, c := range d.clients {
		n += c.outstanding.Size()
	}
	return n
}

// Start opens a reply stream in each cell and begins to read them. A cell that does
// not answer is left for later as long as another one does. ctx bounds the opening
// only. After an error nothing runs and the dispatcher cannot be started any more.
func (d *Dispatcher) Start(ctx context.Context) error {
	d.start.Do(func() {
		if d.startErr = d.open(ctx); d.startErr != nil {
			return
		}
		d.running = true
		for _, c := range d.clients {
			c.run()
		}
		d.loops.Add(1)
		go func() { defer d.loops.Done(); d.followConfig() }()
	})
	return d.startErr
}

// startGrace is how long a start waits for the other cells once one has answered.
const startGrace = 2 * time.Second

// open returns nil when a cell has opened its stream and the others have had their
// time; the keepers of those open theirs later.
func (d *Dispatcher) open(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opened := make(chan error, len(d.clients))
	for _, c := range d.clients {
		go func() { opened <- c.openReplies(ctx) }()
	}
	var first, duplicate error
	some := false
	for range d.clients {
		err := <-opened
		switch {
		case errors.Is(err, ErrReplicaRuns):
			duplicate = err
		case err != nil:
			first = cmp.Or(first, err)
		case !some:
			some = true
			defer time.AfterFunc(startGrace, cancel).Stop()
		}
	}
	if duplicate != nil || !some {
		return cmp.Or(duplicate, first)
	}
	if first != nil {
		d.log.Warn("replies.not_opened", zap.Error(first))
	}
	return nil
}

// Stop ends the loops and gives the reply streams up: results that come later stay
// in their records, jobs that wait go on waiting, and jobs that come later are refused. It tolerates a dispatcher
// that was never started, and being called twice.
func (d *Dispatcher) Stop(ctx context.Context) error {
	var err error
	d.start.Do(func() {}) // what is stopped before its Start never starts
	d.stop.Do(func() {
		d.cancel()
		d.loops.Wait()
		if d.running {
			err = d.close(ctx)
		}
	})
	return err
}

// close gives the streams up, side by side: a cell that is away takes the others no
// time.
func (d *Dispatcher) close(ctx context.Context) error {
	errs := make([]error, len(d.clients))
	var all sync.WaitGroup
	for i, c := range d.clients {
		all.Go(func() { errs[i] = c.closeReplies(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// Cancel ends a job that waits, and asks the node of one that runs to stop it; tenant "" stands for any. The error is a
// *freeslot.Error.
func (d *Dispatcher) Cancel(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cells.Cancel(ctx, tenant, jobID)
	return s, d.coded("cancel", err)
}

// Job reads a job's record; as Cancel.
func (d *Dispatcher) Job(ctx context.Context, tenant, jobID string) (freeslot.JobStatus, error) {
	s, err := d.cells.Job(ctx, tenant, jobID)
	if err == nil && s.State == freeslot.StateWaiting && s.HeldBy == "" && d.classPaused(s.Class) {
		s.HeldBy = freeslot.HeldByPause
	}
	return s, d.coded("read job", err)
}

// Jobs lists jobs; see cell.Set.Jobs. The error is a *freeslot.Error.
func (d *Dispatcher) Jobs(ctx context.Context, f cell.JobFilter, cursor string, limit int) (cell.JobPage, error) {
	page, err := d.cells.Jobs(ctx, f, cursor, limit)
	return page, d.coded("list jobs", err)
}

// coded is the function coded, and logs what the caller is not told.
func (d *Dispatcher) coded(what string, err error) error {
	logFailure(d.sampled, what, err)
	return coded(what, err)
}

func logFailure(log *zap.Logger, what string, err error) {
	var known *freeslot.Error
	if err != nil && !errors.As(err, &known) && !errors.Is(err, context.Canceled) && !errors.Is(err, cell.ErrStopped) {
		log.Warn("redis.call_failed", zap.String("operation", what), zap.Error(err))
	}
}

// coded makes every error a *freeslot.Error: what is not one already says that
// Redis could not be asked.
func coded(what string, err error) error {
	if err == nil {
		return nil
	}
	return codedFailure(what, err)
}

func codedFailure(what string, err error) *freeslot.Error {
	var known *freeslot.Error
	var answer *rueidis.RedisError
	switch {
	case errors.As(err, &known):
		return known
	case isOutOfMemory(err):
		return &freeslot.Error{
			Code: freeslot.CodeOverloaded, RetryAfter: time.Second,
			Message: what + ": Redis is out of memory",
		}
	case errors.Is(err, cell.ErrNotReplicated):
		return &freeslot.Error{Code: freeslot.CodeUnavailable, Message: what + ": too few of Redis' replicas have confirmed it in time", RetryAfter: retryAfter()}
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

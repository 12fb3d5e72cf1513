package centre

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/process/logging"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/selection"
)

// Defaults of a centre.
const (
	// DefaultCleanup is how often a replica asks for the cleanup of each service. Redis lets one
	// replica through every 30 s.
	DefaultCleanup = 15 * time.Second
	// DefaultScan is how often a replica looks for instances that want checks.
	DefaultScan = 3 * time.Second
)

// callTimeout bounds the calls of one round for one service, or one page of targets.
const callTimeout = 2 * time.Second

// store lists the methods of *registry.Store that a centre calls.
type store interface {
	Services(ctx context.Context) ([]string, error)
	Cleanup(ctx context.Context, service string) (registry.Cleaned, error)
	Targets(ctx context.Context) ([]registry.Target, error)
	Verdict(ctx context.Context, t *registry.Target, failing string) error
	Trust(ctx context.Context, t *registry.Target) error
	Doubt(ctx context.Context, self string, held []registry.Target) error
	Doubts(ctx context.Context, self string) ([]registry.Target, error)
}

// Config says what a centre does. Zero durations mean the defaults.
type Config struct {
	// Self is the name of this replica.
	Self string
	// Networks lists where checks may go. If it is empty, no checks are made, and the verdicts of
	// earlier checks are withdrawn.
	Networks []netip.Prefix
	// Probes holds further kinds of checks, by the name that registrations use.
	Probes map[string]Probe
	// Cleanup and Scan are the pauses between rounds.
	Cleanup, Scan time.Duration
}

// Kinds lists the kinds of checks that every centre makes.
var Kinds = []string{"http", "https", "tcp", "grpc", "websocket"}

// Probe is a kind of check written in Go. It checks once, at the instance's address, and opens
// connections only by dial.
type Probe func(ctx context.Context, dial healthcheck.Dial, address, path string) error

// Centre cleans up services and checks instances from outside. Its methods are safe for concurrent
// use.
type Centre struct {
	cfg   Config
	store store
	log   *zap.Logger
	// failures logs failed rounds, by what they do.
	failures *logging.Repeated
	metrics  *metrics
	group    *healthcheck.Group
	dial     healthcheck.Dial
	began    time.Time

	start, stop sync.Once
	ctx         context.Context // ends with Stop
	cancel      context.CancelFunc
	loops       sync.WaitGroup
	// wake holds a token when verdicts, or the replicas, have changed.
	wake chan struct{}
	// cleanedTo is the service at which the last round of cleanup ran out of time, or empty. Only
	// cleanLoop uses it.
	cleanedTo string
	// refused holds the services with an instance whose check was refused, which is logged once.
	// Only checkLoop uses it.
	refused map[string]bool

	mu sync.Mutex // guards what follows
	// share says which targets this replica checks; nil means none, or all if alone is set.
	share   *selection.Share
	alone   bool
	rescan  bool               // the share has changed
	targets map[string]*target // by registry.Target.Name
	// confirming holds the names whose doubts are being examined.
	confirming map[string]bool
}

// New makes a centre. It does no I/O. reg may be nil.
func New(cfg Config, s store, log *zap.Logger, reg prometheus.Registerer) *Centre {
	if cfg.Cleanup == 0 {
		cfg.Cleanup = DefaultCleanup
	}
	if cfg.Scan == 0 {
		cfg.Scan = DefaultScan
	}
	c := &Centre{
		cfg: cfg, store: s, log: log, failures: logging.NewRepeated(log, "registry.centre_failed"),
		dial: dialer(cfg.Networks), alone: true,
		wake: make(chan struct{}, 1), targets: make(map[string]*target), confirming: make(map[string]bool),
		refused: make(map[string]bool), began: time.Now(),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	// Without a registerer a group cannot fail.
	c.group, _ = healthcheck.NewGroup(healthcheck.Options{Report: c.report, Log: zap.NewNop()})
	c.metrics = newMetrics(reg, c)
	return c
}

// Start starts both loops.
func (c *Centre) Start(context.Context) error {
	c.start.Do(func() {
		c.loops.Go(c.cleanLoop)
		c.loops.Go(c.checkLoop)
	})
	return nil
}

// Stop ends all checks and waits. It can be called on a centre that was never started, and twice.
func (c *Centre) Stop(ctx context.Context) error {
	var failed error
	c.stop.Do(func() {
		c.cancel()
		failed = ending.Await(ctx, "stop the registry's centre", func() {
			c.loops.Wait()
			c.group.Close()
		})
	})
	return failed
}

// SetReplicas sets the names of the replicas, from which their shares of the targets follow. Before
// the first call a replica counts as alone.
func (c *Centre) SetReplicas(names []string) {
	c.mu.Lock()
	c.share, c.alone, c.rescan = selection.NewShare(c.cfg.Self, names), slices.Equal(names, []string{c.cfg.Self}), true
	c.mu.Unlock()
	c.signal()
}

func (c *Centre) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// jitter spreads out replicas that started together.
func jitter(d time.Duration) time.Duration { return d*9/10 + rand.N(d/5+1) }

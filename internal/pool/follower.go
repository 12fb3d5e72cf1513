package pool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/selection"
)

// DefaultInterval is how often a follower compares its configuration with Redis.
const DefaultInterval = time.Second

const (
	// staleAfter is how many intervals may pass without a successful comparison before Health
	// reports Stale.
	staleAfter = 3
	// startRetry is the time that Start waits before it asks again a Redis that did not answer.
	startRetry = 50 * time.Millisecond
)

// Config configures a Follower.
type Config struct {
	// Interval is the time between comparisons; 0 means DefaultInterval. It varies by a tenth.
	Interval time.Duration
	// File is in force while Redis has no document; nil means no pools. It must be valid and must
	// not change any more.
	File *selection.Config
	// OnChange gets each configuration that comes into force, in order, valid and with its version.
	// Start calls it for the first one. It must not block, and may be nil.
	OnChange func(*selection.Config)
	// StartPatience is how long Start waits for a Redis that does not answer. After that File is in
	// force until Redis answers. 0 means until the context of Start ends.
	StartPatience time.Duration
	// NoEvents leaves out the subscription: only comparisons find changes then.
	NoEvents bool
}

// Follower keeps a replica's configuration equal to the one in Redis; see the package comment. It
// hears of changes on their channel. It also compares at each interval, because messages can be
// lost and an operator's edit sends none. All methods are safe for concurrent use.
//
// A comparison reads the whole document. A client-side cache would read less, but it would hear of
// a change no sooner than the channel, need a tracking connection, and be wrong while that is down.
// The version alone does not reveal an edit. docs/decisions/007-compare-the-configuration.md has
// the cost of a reading.
type Follower struct {
	cfg     Config
	store   *Store
	sub     *events.Subscriber // nil without events
	log     *zap.Logger
	metrics *metrics

	memory memory // only the poller's functions use it
	state  atomic.Pointer[State]
	// comparedAt is the time of the last successful comparison, in nanoseconds since origin; never
	// before the first.
	comparedAt atomic.Int64
	origin     time.Time

	poller *follow.Poller
	start  sync.Once
	done   chan struct{}   // closed when the poller has ended
	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
}

const never = -1

// New makes a follower of store. It hears of changes through subscriber, which the caller keeps and
// closes. New does no I/O. reg may be nil.
func New(cfg Config, store *Store, subscriber rueidis.Client, log *zap.Logger, reg prometheus.Registerer) *Follower {
	if cfg.Interval == 0 {
		cfg.Interval = DefaultInterval
	}
	if cfg.File == nil {
		cfg.File = &selection.Config{}
	}
	cfg.File = normal(cfg.File)
	ctx, cancel := context.WithCancel(context.Background())
	f := &Follower{
		cfg: cfg, store: store, log: log, origin: time.Now(), done: make(chan struct{}), ctx: ctx, cancel: cancel,
	}
	f.poller = follow.NewPoller(cfg.Interval, cfg.Interval, f.compare)
	f.state.Store(&State{})
	f.comparedAt.Store(never)
	if !cfg.NoEvents {
		f.sub = events.NewSubscriber(subscriber, store.keys.channel, false, log)
		// The messages name versions; the reading that follows is at least as new.
		f.sub.Handle(func(string) { f.poller.Wake() }, f.poller.Wake)
	}
	f.metrics = newMetrics(f, reg)
	return f
}

// Start reads the configuration and follows it until Stop. It returns once the first configuration
// is in force; ctx bounds only that wait. If it returns an error, the follower is stopped.
func (f *Follower) Start(ctx context.Context) error {
	patience := ctx
	if f.cfg.StartPatience > 0 {
		var cancel context.CancelFunc
		patience, cancel = context.WithTimeout(ctx, f.cfg.StartPatience)
		defer cancel()
	}
	var err error
	f.start.Do(func() {
		if f.sub != nil {
			err = f.sub.Start(ctx)
		}
		go f.run()
	})
	for err == nil {
		if err = f.Sync(patience); err == nil {
			return nil
		}
		f.log.Warn("config.read_failed", zap.Error(err))
		select {
		case <-time.After(startRetry):
			err = nil
		case <-patience.Done():
		case <-f.ctx.Done():
		}
	}
	if patience.Err() != nil && ctx.Err() == nil && f.poller.Do(ctx, f.useFile) == nil {
		return nil
	}
	return errors.Join(err, f.Stop(context.WithoutCancel(ctx)))
}

func (f *Follower) run() {
	defer close(f.done)
	f.poller.Run(f.ctx)
}

// Stop ends the poller and waits for it. It may be called twice, and on a follower that was never
// started.
func (f *Follower) Stop(ctx context.Context) error {
	f.cancel()
	f.start.Do(f.run) // so that Sync fails
	var err error
	select {
	case <-f.done:
	case <-ctx.Done():
		err = fmt.Errorf("stop configuration follower: %w", ctx.Err())
	}
	if f.sub != nil { // even if ctx has ended, or it would go on subscribing
		err = errors.Join(err, f.sub.Stop(ctx))
	}
	return err
}

// Sync compares the configuration with Redis now, and returns once the configuration that it found
// is in force. The error is the one from Redis.
func (f *Follower) Sync(ctx context.Context) error { return f.poller.Sync(ctx) }

// Current returns the state in force; its Config is nil until Start has returned.
func (f *Follower) Current() State { return *f.state.Load() }

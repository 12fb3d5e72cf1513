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

	memory memory // used by the loop alone
	state  atomic.Pointer[State]
	// comparedAt is the time of the last successful comparison, in nanoseconds since origin; never
	// before the first.
	comparedAt atomic.Int64
	origin     time.Time

	syncs    chan chan error // each with room for its answer
	withFile chan struct{}   // asks to put File in force if nothing is
	start    sync.Once
	stop     sync.Once
	stopping chan struct{}
	done     chan struct{}
	ctx      context.Context
	cancel   context.CancelFunc
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
		cfg: cfg, store: store, log: log, origin: time.Now(),
		syncs: make(chan chan error), withFile: make(chan struct{}), stopping: make(chan struct{}), done: make(chan struct{}),
		ctx: ctx, cancel: cancel,
	}
	f.state.Store(&State{})
	f.comparedAt.Store(never)
	if !cfg.NoEvents {
		f.sub = events.NewSubscriber(subscriber, store.keys.channel, false, log)
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
		go f.loop()
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
		case <-f.stopping:
		}
	}
	if patience.Err() != nil && ctx.Err() == nil {
		select {
		case f.withFile <- struct{}{}:
			return nil
		case <-ctx.Done():
		case <-f.stopping:
		}
	}
	return errors.Join(err, f.Stop(context.WithoutCancel(ctx)))
}

// Stop ends the loop and waits for it. It may be called twice, and on a follower that was never
// started.
func (f *Follower) Stop(ctx context.Context) error {
	f.start.Do(func() { close(f.done) })
	f.stop.Do(func() {
		close(f.stopping)
		f.cancel()
	})
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

// errStopped is returned by Sync of a follower that was stopped.
var errStopped = errors.New("configuration follower is stopped")

// Sync compares the configuration with Redis now, and returns once the configuration that it found
// is in force. The error is the one from Redis.
func (f *Follower) Sync(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case f.syncs <- answer:
	case <-ctx.Done():
		return fmt.Errorf("compare configuration: %w", ctx.Err())
	case <-f.stopping:
		return errStopped
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("compare configuration: %w", ctx.Err())
	case <-f.stopping:
		return errStopped
	}
}

// Current returns the state in force; its Config is nil until Start has returned.
func (f *Follower) Current() State { return *f.state.Load() }

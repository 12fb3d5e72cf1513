package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/process/ending"
	"github.com/freeslot/freeslot/internal/process/output"
)

// Consumer follows services and keeps their lists of instances. It is safe for concurrent use.
// While Redis is away its lists stay, and say so. It reconnects by itself and never gives up.
type Consumer struct {
	opts    ConsumerOptions
	log     *zap.Logger
	metrics *consumerMetrics
	disk    *follow.Disk[*List] // nil without a folder

	ctx     context.Context // ends with Stop
	cancel  context.CancelFunc
	loops   sync.WaitGroup
	started atomic.Bool
	stop    sync.Once
	start   sync.Mutex // held by Start

	services  sync.Map // name -> *followed
	documents documents
	redis     *connection

	// poke holds a token while added or removed has services, notify while changed has.
	poke, notify chan struct{}

	mu      sync.Mutex
	added   []*followed            // guarded by mu
	removed []*followed            // guarded by mu
	changed map[*followed]struct{} // guarded by mu; listeners have not seen their new list yet
}

// followed is one service that a consumer follows.
type followed struct {
	service string
	list    atomic.Pointer[List]
	ready   chan struct{} // closed when there is a list
	gone    chan struct{} // closed when the service is no longer followed

	// A service is followed for its listeners, guarded by Consumer.mu, and for read. If there is no
	// listener, read is set with mu held. Invariant: without either it is not in Consumer.services.
	listeners []*Listener
	read      atomic.Bool // from the first read until Unsubscribe

	follower followerState
}

// Listener is one call of Subscribe. It gets each new list of a service.
type Listener struct {
	call       func(*List)
	subscribed bool        // true if Subscribe made it
	gone       atomic.Bool // true once it must not be called
	last       *List       // only the notifier uses it
}

// NewConsumer makes a consumer. It does no I/O. Errors: an *freeslot.Error that names every bad
// option.
func NewConsumer(opts ConsumerOptions) (*Consumer, error) {
	opts = opts.WithDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	c := &Consumer{
		opts: opts, log: opts.Logger, metrics: newConsumerMetrics(opts.Registerer),
		redis: newConnection(
			dialer(opts.RedisURL, opts.Access, Prefix(opts.KeyPrefix, opts.Namespace), opts.Logger, opts.Registerer),
			opts.Logger,
		),
		poke: make(chan struct{}, 1), notify: make(chan struct{}, 1), changed: make(map[*followed]struct{}),
	}
	if opts.SnapshotDir != "" {
		c.disk = newSnapshots(opts.SnapshotDir, Prefix(opts.KeyPrefix, opts.Namespace), opts.Logger)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.documents = documents{c: c, watched: make(map[string]*watched), byChannel: make(map[string]*watched)}
	return c, nil
}

// Start connects to Redis. ctx bounds only the start. After an error Start can be called again.
// With a folder of snapshots it succeeds even if Redis does not answer within two seconds: the
// consumer then goes on trying. Without a folder that is an error. It also fails if Redis refuses,
// with invalid_argument if no file can be made in the folder, and with ErrClosed after Stop.
func (c *Consumer) Start(ctx context.Context) error {
	c.start.Lock()
	defer c.start.Unlock()
	switch {
	case c.ctx.Err() != nil:
		return ErrClosed
	case c.started.Load():
		return errors.New("registry: consumer was started before")
	}
	if c.disk != nil {
		if err := output.TryFolder(c.disk.Dir); err != nil {
			return freeslot.Invalid("snapshot_dir", "is %q, expected a folder in which files can be made: %v", c.disk.Dir, err)
		}
	}
	if err := c.redis.begin(ctx, c.disk != nil); err != nil {
		return fmt.Errorf("start consumer: %w", err)
	}
	c.begin()
	return nil
}

// begin starts the loops.
func (c *Consumer) begin() {
	f := newFollower(c)
	c.started.Store(true)
	c.loops.Go(func() { c.redis.keepDialing(c.ctx) })
	c.loops.Go(f.loop)
	c.loops.Go(c.notifyLoop)
	if c.disk != nil {
		c.loops.Go(func() { c.disk.Run(c.ctx) })
	}
}

// Stop ends the consumer; its lists stay as they are. It waits for a listener that is being called.
// It can be called on a consumer that was never started, and twice.
func (c *Consumer) Stop(ctx context.Context) error {
	var failed error
	c.stop.Do(func() {
		c.documents.mu.Lock() // no watch begins a loop after this
		c.cancel()
		c.documents.mu.Unlock()
		c.start.Lock() // a Start under way ends first
		defer c.start.Unlock()
		failed = ending.Await(ctx, "registry: stop", c.loops.Wait)
		c.redis.close()
	})
	return failed
}

// Running reports whether the consumer was started and not stopped.
func (c *Consumer) Running() bool { return c.started.Load() && c.ctx.Err() == nil }

// Subscribe follows a service and calls call with each new list, first with the current one. It may
// be called before Start. One goroutine calls all listeners of a consumer, one after the other: a
// slow one delays the others, and then gets only the latest list. A listener must not call Stop. To
// end this Subscribe alone, pass the Listener to Unsubscribe. Errors: an *freeslot.Error for a bad
// name; ErrClosed.
func (c *Consumer) Subscribe(service string, call func(*List)) (*Listener, error) {
	l := &Listener{call: call, subscribed: true}
	if _, _, err := c.listen(service, l); err != nil {
		return nil, err
	}
	return l, nil
}

// Unsubscribe ends the Subscribes with these listeners. Without listeners, it ends all Subscribes
// and reads of the service. It does not wait for a listener that is being called, which is not
// called again. What Follow and Lists began goes on. Errors: ErrNotSubscribed, also if one of the
// listeners does not belong to the service; the others were ended then.
func (c *Consumer) Unsubscribe(service string, listeners ...*Listener) (failed error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v, ok := c.services.Load(service)
	if !ok {
		return ErrNotSubscribed
	}
	f := v.(*followed)
	all := len(listeners) == 0
	ended := f.leave(func(l *Listener) bool { return l.subscribed && (all || slices.Contains(listeners, l)) })
	if all && !f.read.Swap(false) && ended == 0 || ended < len(listeners) {
		failed = ErrNotSubscribed
	}
	c.release(f)
	return failed
}

// leave ends listeners, and returns how many it ended. The caller holds Consumer.mu.
func (s *followed) leave(ends func(*Listener) bool) (ended int) {
	s.listeners = slices.DeleteFunc(s.listeners, func(l *Listener) bool {
		if !ends(l) {
			return false
		}
		l.gone.Store(true)
		ended++
		return true
	})
	return ended
}

// follow returns the service, and follows it from now on. It calls use, which adds what the service
// is followed for, with mu held.
func (c *Consumer) follow(service string, use func(*followed)) (*followed, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v, ok := c.services.Load(service); ok {
		f := v.(*followed)
		use(f)
		return f, nil
	}
	if err := freeslot.ValidateName("service", service); err != nil {
		return nil, err
	}
	if c.ctx.Err() != nil {
		return nil, ErrClosed
	}
	f := &followed{service: service, ready: make(chan struct{}), gone: make(chan struct{})}
	use(f)
	c.services.Store(service, f)
	c.added = append(c.added, f)
	follow.Wake(c.poke)
	return f, nil
}

// release stops following a service that nothing uses any more. The caller holds mu.
func (c *Consumer) release(f *followed) {
	if len(f.listeners) > 0 || f.read.Load() || !c.services.CompareAndDelete(f.service, f) {
		return
	}
	close(f.gone)
	c.removed = append(c.removed, f)
	follow.Wake(c.poke)
}

// AllInstances returns the list of a service, at once if the consumer follows it. Otherwise it
// follows the service from now on, until Unsubscribe, and waits for the first list. Errors: an
// *freeslot.Error for a bad name; ErrNotStarted; ErrClosed; ErrNotSubscribed if Unsubscribe was
// called meanwhile; the end of ctx.
func (c *Consumer) AllInstances(ctx context.Context, service string) (*List, error) {
	f, err := c.listed(ctx, service)
	if err != nil {
		return nil, err
	}
	return f.list.Load(), nil
}

// listed marks a service as read, and waits until it has a list.
func (c *Consumer) listed(ctx context.Context, service string) (*followed, error) {
	if v, ok := c.services.Load(service); ok && v.(*followed).read.Load() && v.(*followed).list.Load() != nil {
		return v.(*followed), nil
	}
	if !c.started.Load() {
		return nil, ErrNotStarted
	}
	f, err := c.follow(service, func(f *followed) { f.read.Store(true) })
	if err != nil {
		return nil, err
	}
	return f, c.first(ctx, f)
}

// first waits for the first list of a service.
func (c *Consumer) first(ctx context.Context, f *followed) error {
	if f.list.Load() != nil {
		return nil
	}
	select {
	case <-f.ready:
		return nil
	case <-f.gone:
		return ErrNotSubscribed
	case <-c.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("wait for the first list of service %s: %w", f.service, context.Cause(ctx))
	}
}

// ReadOption changes one read.
type ReadOption func(*readOptions)

type readOptions struct{ timeout *time.Duration }

// WithTimeout uses t, which must be more than 0, to judge lateness in one read, which then asks
// Redis. A time below twice the longest interval of the service is raised to that.
func WithTimeout(t time.Duration) ReadOption { return func(o *readOptions) { o.timeout = &t } }

// HealthyInstances returns the Healthy part of AllInstances' list. It fails as AllInstances does.
// With WithTimeout it can also fail with an error of Redis, or with invalid_argument if the time is
// not positive.
func (c *Consumer) HealthyInstances(ctx context.Context, service string, options ...ReadOption) (*List, error) {
	var o readOptions
	for _, set := range options {
		set(&o)
	}
	if o.timeout != nil && *o.timeout <= 0 {
		return nil, freeslot.Invalid("timeout", "is %s, expected more than 0", *o.timeout)
	}
	f, err := c.listed(ctx, service)
	if err != nil {
		return nil, err
	}
	if o.timeout == nil {
		return f.list.Load().Healthy(), nil
	}
	on := c.redis.on.Load()
	if on == nil {
		return nil, fmt.Errorf("look at service %s: %w", service, errNotConnected)
	}
	found, err := on.poll(ctx, false, []lookItem{{service: service, timeout: *o.timeout}})
	if err != nil {
		return nil, fmt.Errorf("look at service %s: %w", service, err)
	}
	return f.list.Load().judged(*o.timeout, &found[0]).Healthy(), nil
}

// judged returns the list with the lateness that a look has found.
func (l *List) judged(timeout time.Duration, found *looked) *List {
	late := make(map[string]struct{}, len(found.late))
	for _, id := range found.late {
		late[id] = struct{}{}
	}
	out := *l
	out.healthy, out.Timeout = nil, max(timeout, 2*found.head.Longest)
	out.Instances = slices.Clone(l.Instances)
	for i, in := range l.Instances {
		if _, is := late[in.ID]; !in.Unconfirmed && is != in.Late {
			other := *in
			other.Late = is
			out.Instances[i] = &other
		}
	}
	return &out
}

// publish gives out a new list.
func (c *Consumer) publish(f *followed, l *List) {
	first := f.list.Swap(l) == nil
	if first {
		close(f.ready)
	}
	if c.disk != nil && l.worthKeeping() {
		c.disk.Changed(l.Service, l)
	}
	c.tell(f)
}

// tell makes the notifier call the listeners of a service.
func (c *Consumer) tell(f *followed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(f.listeners) > 0 {
		c.changed[f] = struct{}{}
		follow.Wake(c.notify)
	}
}

// notifyLoop calls the listeners.
func (c *Consumer) notifyLoop() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.notify:
		}
		c.mu.Lock()
		changed := c.changed
		c.changed = make(map[*followed]struct{})
		c.mu.Unlock()
		for f := range changed {
			c.mu.Lock()
			listeners := slices.Clone(f.listeners)
			c.mu.Unlock()
			for _, l := range listeners {
				if list := f.list.Load(); list != nil && list != l.last && !l.gone.Load() && c.ctx.Err() == nil {
					l.last = list
					l.call(list)
				}
			}
		}
	}
}

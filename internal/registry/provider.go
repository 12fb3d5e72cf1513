package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/node/heartbeat"
)

// Provider keeps instances registered while it runs: it sends their heartbeats and metrics, and
// registers them again, for ever, where Redis has lost them. Its methods are safe for concurrent
// use.
type Provider struct {
	opts    Options
	log     *zap.Logger
	metrics *providerMetrics
	// epoch is this life of the provider.
	epoch   string
	runner  *collector.Runner
	current atomic.Pointer[ownMetrics]

	starting sync.Mutex // held by Start
	redis    *connection
	shared   bool // another one dials and closes redis

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	stop   sync.Once

	mu       sync.Mutex
	begun    bool                // guarded by mu
	stopping bool                // guarded by mu
	services map[string]*service // guarded by mu, which comes before that of a service
	loops    sync.WaitGroup      // guarded by mu until stopping
}

// ownMetrics are the last metrics of this process.
type ownMetrics struct {
	flat heartbeat.Metrics
	json string // empty without any
}

// NewProvider makes a provider. It does no I/O. Errors: an *freeslot.Error that names every bad
// option.
func NewProvider(opts Options) (*Provider, error) { return newProvider(opts, nil) }

// newProvider makes a provider on a connection that the caller opens and closes; nil lets Start open one.
func newProvider(opts Options, shared *connection) (*Provider, error) {
	opts = opts.WithDefaults()
	if shared == nil || opts.RedisURL != "" {
		if err := opts.Validate(); err != nil {
			return nil, err
		}
	}
	// Without metrics of its own: they have the worker's names, and a process may be a worker, too.
	runner, err := collector.New(opts.Collectors, opts.Logger, nil)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		opts: opts, log: opts.Logger, epoch: newEpoch(), runner: runner, redis: shared, shared: shared != nil,
		services: make(map[string]*service),
	}
	if shared == nil {
		p.redis = newConnection(dialer(opts.RedisURL, opts.Access, Prefix(opts.KeyPrefix, opts.Namespace), opts.Logger, nil), opts.Logger)
	}
	p.current.Store(&ownMetrics{})
	p.metrics = newProviderMetrics(opts.Registerer, p.Status)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Start connects to Redis. A Redis that does not answer within two seconds is no error: the
// provider goes on trying until Stop. ctx bounds the start alone. After an error it can be called
// again. Errors: a Redis that refuses; the end of ctx; ErrClosed.
func (p *Provider) Start(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	switch {
	case p.ctx.Err() != nil:
		return ErrClosed
	case p.Running():
		return errors.New("registry: provider was started before")
	}
	if !p.shared {
		if err := p.redis.begin(ctx, true); err != nil {
			return fmt.Errorf("start provider: %w", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return ErrClosed // Stop closes the connection
	}
	p.begun = true
	if !p.shared {
		p.loops.Go(func() { p.redis.keepDialing(p.ctx) })
	}
	if len(p.opts.Collectors) > 0 {
		p.loops.Go(func() { p.runner.Run(p.ctx) })
		p.loops.Go(p.collect)
	}
	return nil
}

// collect hands new metrics to the services.
func (p *Provider) collect() {
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-p.runner.Changed():
		}
		snapshot := p.runner.Latest()
		raw, err := json.Marshal(snapshot)
		if err != nil {
			panic("registry: metrics are no JSON: " + err.Error())
		}
		next := &ownMetrics{flat: snapshot.Flat()}
		if len(snapshot) > 0 {
			next.json = string(raw)
		}
		p.current.Store(next)
		for _, s := range p.all() {
			s.poke()
		}
	}
}

// conn is nil until Redis was reached.
func (p *Provider) conn() *conn { return p.redis.on.Load() }

func (p *Provider) figures() *ownMetrics { return p.current.Load() }

// all are the services, by name.
func (p *Provider) all() []*service {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.SortedFunc(maps.Values(p.services), func(a, b *service) int { return strings.Compare(a.name, b.name) })
}

// Running reports whether the provider has been started and not stopped.
func (p *Provider) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.begun && !p.stopping
}

// Register takes an instance into the provider's care, or changes what is said of it, and waits for
// the first try. After an error but invalid_argument, ErrNotStarted and ErrClosed it goes on
// trying, until Deregister: the error says why Redis does not have the instance yet.
//
// The host of an instance without one, or on loopback, is settled when the route to Redis can be
// found. Until then an instance whose id comes with its host has the id "{host}:port". If its host
// is refused then, Status and the log say so, and nothing more is tried.
//
// Errors: unavailable while Redis was not reached since the start; a *HolderError for a conflict,
// or for an instance that was superseded; overloaded where Redis has no memory; what Redis or ctx
// say. A superseded instance ends for good, also after a Deregister: only a new Provider, which is
// another life, can take its id back.
func (p *Provider) Register(ctx context.Context, reg Registration) error {
	if err := p.ready(); err != nil {
		return err
	}
	if reg.Interval == 0 {
		reg.Interval = p.opts.Heartbeat.HeartbeatInterval
	}
	var found freeslot.FieldErrors
	hostID := reg.ID == "" && reg.Host == "" // the id comes with the host
	at, err := p.locate(ctx, reg)
	unplaced := err != nil
	if !unplaced {
		reg, err = at.place(reg)
		found.Add(err)
	}
	check := reg
	if unplaced && check.Host == "" {
		check.Host = "localhost" // in place of the one that comes later
	}
	check = check.WithDefaults()
	check.validate(&found)
	p.checkLabels(check, &found)
	if err := found.Err(); err != nil {
		return err
	}
	if hostID && unplaced {
		reg.ID = unplacedID(reg.Port)
	}
	reg = reg.WithDefaults()
	s, err := p.locked(reg.Service)
	if err != nil {
		return err
	}
	return s.ask(ctx, reg.ID, func(m *member) (*member, error) {
		switch {
		case m != nil && m.superseded():
			return nil, m.err
		case m == nil || m.over():
			m = newMember(reg, p.opts.Heartbeat)
		case m.leaving:
			return nil, fmt.Errorf("instance %s of %s is being deregistered", reg.ID, reg.Service)
		case m.reg.Interval != reg.Interval || m.reg.Persistent != reg.Persistent:
			m = m.renewed(newMember(reg, p.opts.Heartbeat))
		default:
			m.set(reg)
		}
		if m.unplaced = unplaced; hostID && !unplaced {
			s.drop(unplacedID(reg.Port), errReplaced)
		}
		return m, nil
	})
}

// locate is how this process and Redis see each other, as far as that matters for the host of an
// instance.
func (p *Provider) locate(ctx context.Context, reg Registration) (where, error) {
	if reg.Host != "" && !isLoopback(reg.Host) {
		return where{}, nil
	}
	on := p.conn()
	if on == nil {
		return where{}, errNotConnected
	}
	return on.locate(ctx)
}

// checkLabels refuses labels that metrics would overwrite.
func (p *Provider) checkLabels(reg Registration, found *freeslot.FieldErrors) {
	if !p.opts.FlatMetrics {
		return
	}
	for _, c := range p.opts.Collectors {
		for _, key := range slices.Sorted(maps.Keys(reg.Metadata)) {
			if strings.HasPrefix(key, c.Collector.Type()+"_") {
				found.Addf(fmt.Sprintf("metadata[%q]", key), "is where flat metrics of %s go, expected another key", c.Collector.Type())
			}
		}
	}
}

// Deregister ends an instance. After other errors than these two it goes on trying: ErrUnknown if
// the provider has no such instance; a *HolderError if another one has it, which then keeps it.
func (p *Provider) Deregister(ctx context.Context, serviceName, id string) error {
	return p.ask(ctx, serviceName, id, func(m *member) { m.leaving = !m.superseded() })
}

// Heartbeat sends a heartbeat at once, besides those that are sent anyway. Errors: ErrUnknown if
// the provider has no such instance, or if Redis has none, which the provider mends; a
// *HolderError; what Redis or ctx say.
func (p *Provider) Heartbeat(ctx context.Context, serviceName, id string) error {
	return p.ask(ctx, serviceName, id, func(*member) {})
}

// HeartbeatResult is what became of one heartbeat of HeartbeatAll.
type HeartbeatResult struct {
	Service, ID string
	Err         error // as Heartbeat returns it
}

// HeartbeatAll is Heartbeat for all instances of the provider, in calls of many.
func (p *Provider) HeartbeatAll(ctx context.Context) ([]HeartbeatResult, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	return p.askAll(ctx, func(m *member) bool { return !m.leaving }), nil
}

// Status is what the provider knows of its instances, sorted by service and id.
func (p *Provider) Status() (out []InstanceStatus) {
	for _, s := range p.all() {
		s.mu.Lock()
		for _, id := range slices.Sorted(maps.Keys(s.members)) {
			out = append(out, s.members[id].status())
		}
		s.mu.Unlock()
	}
	return out
}

// Stop marks the instances as draining, waits StopPause for consumers to see it, and deregisters
// them; persistent ones stay. ctx bounds all of it. It tolerates a provider that was never started,
// and being called twice. Errors: instances that could not be deregistered; consumers see them as
// late.
func (p *Provider) Stop(ctx context.Context) (failed error) {
	p.stop.Do(func() {
		p.mu.Lock()
		p.stopping = true
		begun := p.begun
		p.mu.Unlock()
		if begun {
			failed = p.leave(ctx)
		}
		p.cancel()
		p.starting.Lock() // a Start under way ends first
		defer p.starting.Unlock()
		failed = errors.Join(failed, waitFor(ctx, &p.loops))
		if !p.shared {
			p.redis.close()
		}
	})
	return failed
}

// leave drains and deregisters.
func (p *Provider) leave(ctx context.Context) error {
	ephemeral := func(m *member) bool { return !m.reg.Persistent && !m.superseded() && !m.leaving }
	drained := p.askAll(ctx, func(m *member) bool {
		if !ephemeral(m) || !m.there {
			return false
		}
		reg := m.reg
		reg.Draining = true
		m.set(reg)
		return true
	})
	if p.opts.StopPause > 0 && slices.ContainsFunc(drained, func(r HeartbeatResult) bool { return r.Err == nil }) {
		pause := time.NewTimer(p.opts.StopPause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	var errs []error
	for _, r := range p.askAll(ctx, func(m *member) bool {
		if !ephemeral(m) {
			return false
		}
		m.leaving = true
		return true
	}) {
		if r.Err != nil && !errors.As(r.Err, new(*HolderError)) {
			errs = append(errs, fmt.Errorf("deregister instance %s of %s: %w", r.ID, r.Service, r.Err))
		}
	}
	return errors.Join(errs...)
}

// ready is the error of calls before Start and after Stop.
func (p *Provider) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopping:
		return ErrClosed
	case !p.begun:
		return ErrNotStarted
	}
	return nil
}

// locked is a service whose mu is locked, so that its loop does not end before it has a member.
func (p *Provider) locked(name string) (*service, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping {
		return nil, ErrClosed
	}
	s := p.services[name]
	if s == nil {
		s = newService(p, name)
		p.services[name] = s
		p.loops.Go(func() { s.run(p.ctx) })
	}
	s.mu.Lock()
	return s, nil
}

// forget takes a service without members away, whose loop ends then.
func (p *Provider) forget(s *service) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.members) > 0 {
		return false
	}
	delete(p.services, s.name)
	return true
}

// ask lets a member of the provider do something, and waits for the outcome.
func (p *Provider) ask(ctx context.Context, serviceName, id string, change func(*member)) error {
	if err := p.ready(); err != nil {
		return err
	}
	p.mu.Lock()
	s := p.services[serviceName]
	p.mu.Unlock()
	if s == nil {
		return ErrUnknown
	}
	s.mu.Lock()
	return s.ask(ctx, id, func(m *member) (*member, error) {
		if m == nil {
			return nil, ErrUnknown
		}
		change(m)
		return m, nil
	})
}

// askAll lets all members for which choose is true do something, and waits for the outcomes.
func (p *Provider) askAll(ctx context.Context, choose func(*member) bool) (out []HeartbeatResult) {
	var outcomes []<-chan error
	for _, s := range p.all() {
		s.mu.Lock()
		for _, id := range slices.Sorted(maps.Keys(s.members)) {
			if m := s.members[id]; choose(m) {
				out = append(out, HeartbeatResult{Service: s.name, ID: id})
				outcomes = append(outcomes, s.demand(m))
			}
		}
		s.mu.Unlock()
		s.poke()
	}
	for i, outcome := range outcomes {
		out[i].Err = wait(ctx, outcome)
	}
	return out
}

// ask is askAll for one member. change gets nil where there is none, and returns the one to keep.
// The caller has locked mu, which ask unlocks.
func (s *service) ask(ctx context.Context, id string, change func(*member) (*member, error)) error {
	m, err := change(s.members[id])
	if err != nil {
		s.mu.Unlock()
		return err
	}
	s.put(m)
	outcome := s.demand(m)
	s.mu.Unlock()
	s.poke()
	return wait(ctx, outcome)
}

// demand makes the next task of a member due, and is where its outcome comes. The caller holds mu.
func (s *service) demand(m *member) <-chan error {
	outcome := m.ask()
	switch reached := s.p.conn() != nil; {
	case s.p.ctx.Err() != nil:
		m.drop(ErrClosed) // the loop is over
	case m.leaving && !m.there && (!reached || m.unplaced): // Redis never had it
		s.drop(m.reg.ID, nil)
	case !reached: // the loop begins later
		m.err = errLater
		m.drop(m.err)
	}
	return outcome
}

// put has a member take the place of another one with its id. The caller holds mu.
func (s *service) put(m *member) {
	if old := s.members[m.reg.ID]; old != nil && old != m {
		if old.superseded() { // m was not placed before
			m.succeed(old)
		}
		s.drop(m.reg.ID, errReplaced)
	}
	s.members[m.reg.ID] = m
}

// drop ends the care of a member. The caller holds mu.
func (s *service) drop(id string, err error) {
	if m := s.members[id]; m != nil {
		m.drop(err)
		delete(s.members, id)
	}
}

// errLater is returned by calls before Redis was reached.
var errLater = &freeslot.Error{
	Code:    freeslot.CodeUnavailable,
	Message: "redis was not reached since the start, and has the instance when it is",
}

var errReplaced = errors.New("registry: the instance was registered anew meanwhile")

func wait(ctx context.Context, outcome <-chan error) error {
	select {
	case err := <-outcome:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

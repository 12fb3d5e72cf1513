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
	"github.com/freeslot/freeslot/internal/heartbeat"
	"github.com/freeslot/freeslot/internal/loopback"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/process/ending"
)

// Provider keeps instances registered while it runs: it sends their heartbeats and metrics. If
// Redis has lost them, it registers them again, and never gives up. Its methods are safe for
// concurrent use.
type Provider struct {
	opts    Options
	log     *zap.Logger
	metrics *providerMetrics
	// epoch names this life of the provider.
	epoch   string
	runner  *collector.Runner
	current atomic.Pointer[ownMetrics]

	starting sync.Mutex // held by Start
	redis    *connection
	shared   bool // someone else dials and closes redis

	ctx    context.Context // ends with Stop
	cancel context.CancelFunc
	stop   sync.Once

	mu       sync.Mutex
	begun    bool                // guarded by mu
	stopping bool                // guarded by mu
	services map[string]*service // guarded by mu, which is locked before a service's mu
	loops    sync.WaitGroup      // guarded by mu until stopping
}

// ownMetrics holds the last metrics of this process.
type ownMetrics struct {
	flat heartbeat.Metrics
	json string // empty without any
}

// NewProvider makes a provider. It does no I/O. Errors: an *freeslot.Error that names every bad
// option.
func NewProvider(opts Options) (*Provider, error) { return newProvider(opts, nil) }

// newProvider makes a provider on a connection that the caller opens and closes; with nil, Start
// opens one.
func newProvider(opts Options, shared *connection) (*Provider, error) {
	opts = opts.WithDefaults()
	if shared == nil || opts.RedisURL != "" {
		if err := opts.Validate(); err != nil {
			return nil, err
		}
	}
	// It gets no registerer, because its metrics would clash with a worker's in the same process.
	runner, err := collector.New(opts.Collectors, opts.Logger, nil)
	if err != nil {
		return nil, err
	}
	p := &Provider{
		opts: opts, log: opts.Logger, epoch: newEpoch(), runner: runner, redis: shared, shared: shared != nil,
		services: make(map[string]*service),
	}
	if shared == nil {
		p.redis = newConnection(
			dialer(opts.RedisURL, opts.Access, Prefix(opts.KeyPrefix, opts.Namespace), opts.Logger, nil), opts.Logger,
		)
	}
	p.current.Store(&ownMetrics{})
	p.metrics = newProviderMetrics(opts.Registerer, p.Status)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Start connects to Redis. If Redis does not answer within two seconds, Start succeeds and the
// provider goes on trying until Stop. ctx bounds only the start. It can be called again after an
// error. Errors: a refusal by Redis; the end of ctx; ErrClosed.
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

// conn returns nil until Redis was reached.
func (p *Provider) conn() *conn { return p.redis.on.Load() }

func (p *Provider) figures() *ownMetrics { return p.current.Load() }

// all returns the services, by name.
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

// Register takes an instance into the provider's care, or changes its description, and waits for
// the first try. After an error the provider goes on trying until Deregister, and the error says
// why Redis does not have the instance yet. After invalid_argument, ErrNotStarted and ErrClosed it
// does not try. Before Start a bad registration gets invalid_argument, and any other ErrNotStarted.
//
// An instance without a host, or on loopback, gets its host when the route to Redis can be found.
// If its id comes from the host, its id is "{host}:port" until then. If the host is refused then,
// Status and the log say so, and nothing more is tried.
//
// Errors: unavailable while Redis was not reached since the start; a *HolderError for a conflict,
// or for an instance that was superseded; overloaded if Redis has no memory; an error of Redis or
// ctx. A superseded instance has ended for good, even after Deregister: only a new Provider, which
// is another life, can take its id back.
func (p *Provider) Register(ctx context.Context, reg Registration) error {
	if reg.Interval == 0 {
		reg.Interval = p.opts.Heartbeat.HeartbeatInterval
	}
	var found freeslot.FieldErrors
	hostID := reg.ID == "" && reg.Host == "" // the id comes from the host
	at, err := p.locate(ctx, reg)
	unplaced := err != nil
	if !unplaced {
		reg, err = at.place(reg)
		found.Add(err)
	}
	check := reg
	if unplaced && check.Host == "" {
		check.Host = "localhost" // instead of the host that is not known yet
	}
	check = check.WithDefaults()
	check.validate(&found)
	p.checkLabels(check, &found)
	if err := found.Err(); err != nil {
		return err
	}
	if err := p.ready(); err != nil {
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

// locate returns how this process and Redis see each other, if the host of an instance depends on
// it.
func (p *Provider) locate(ctx context.Context, reg Registration) (where, error) {
	if reg.Host != "" && !loopback.Is(reg.Host) {
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
				found.Addf(
					fmt.Sprintf("metadata[%q]", key), "is where flat metrics of %s go, expected another key", c.Collector.Type(),
				)
			}
		}
	}
}

// Deregister ends an instance. It returns ErrUnknown if the provider has no such instance, and a
// *HolderError if another provider has the instance, which then keeps it. After any other error the
// provider goes on trying.
func (p *Provider) Deregister(ctx context.Context, serviceName, id string) error {
	return p.ask(ctx, serviceName, id, func(m *member) { m.leaving = !m.superseded() })
}

// Heartbeat sends a heartbeat at once, in addition to the regular ones. Errors: ErrUnknown if the
// provider has no such instance, or if Redis has none, in which case the provider registers it
// again; a *HolderError; an error of Redis or ctx.
func (p *Provider) Heartbeat(ctx context.Context, serviceName, id string) error {
	return p.ask(ctx, serviceName, id, func(*member) {})
}

// HeartbeatResult is the outcome of one heartbeat of HeartbeatAll.
type HeartbeatResult struct {
	Service, ID string
	Err         error // as Heartbeat returns it
}

// HeartbeatAll sends a heartbeat for each instance of the provider, many in one call.
func (p *Provider) HeartbeatAll(ctx context.Context) ([]HeartbeatResult, error) {
	if err := p.ready(); err != nil {
		return nil, err
	}
	return p.askAll(ctx, func(m *member) bool { return !m.leaving }), nil
}

// Status returns what the provider knows of its instances, sorted by service and id.
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
// them; persistent ones stay. ctx bounds all of it. It can be called on a provider that was never
// started, and twice. The error names instances that could not be deregistered; consumers see them
// as late.
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
		failed = errors.Join(failed, ending.Await(ctx, "registry: stop", p.loops.Wait))
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

// ready returns the error of calls before Start and after Stop, or nil.
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

// locked returns a service with its mu locked, so that its loop does not end before it has a
// member.
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

// forget removes a service without members, whose loop then ends.
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

// ask changes a member of the provider, and waits for the outcome.
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

// askAll makes the next task due of each member that choose selects, and waits for the outcomes.
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

// ask makes the next task of one member due, and waits for its outcome. change gets the member, or
// nil, and returns the one to keep. The caller has locked mu, which ask unlocks.
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

// demand makes the next task of a member due, and returns the channel of its outcome. The caller
// holds mu.
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

// put stores a member, which replaces another one with its id. The caller holds mu.
func (s *service) put(m *member) {
	if old := s.members[m.reg.ID]; old != nil && old != m {
		if old.superseded() { // m was not placed before
			m.succeed(old)
		}
		s.drop(m.reg.ID, errReplaced)
	}
	s.members[m.reg.ID] = m
}

// drop removes a member. The caller holds mu.
func (s *service) drop(id string, err error) {
	if m := s.members[id]; m != nil {
		m.drop(err)
		delete(s.members, id)
	}
}

// errLater is returned by calls before Redis was reached.
var errLater = &freeslot.Error{
	Code:    freeslot.CodeUnavailable,
	Message: "redis has not answered since the start; the instance is registered when it does",
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

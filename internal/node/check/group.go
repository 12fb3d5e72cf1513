package check

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Group checks the services of one node. It is safe for concurrent use.
type Group struct {
	report  func(service string, healthy bool)
	log     *zap.Logger
	metrics *metrics
	// probe is newProbe, but for tests.
	probe func(*Config) probe

	mu     sync.Mutex // guards what follows; held while a loop ends, so that a service has one at most
	loops  map[string]*loop
	closed bool
}

// NewGroup makes a group that checks nothing yet. report is called with each change of a
// service's health, by the service's own goroutine; it must not block and must not call the
// group. reg may be nil.
func NewGroup(log *zap.Logger, reg prometheus.Registerer, report func(service string, healthy bool)) (*Group, error) {
	m, err := newMetrics(reg)
	if err != nil {
		return nil, err
	}
	return &Group{report: report, log: log, metrics: m, probe: newProbe, loops: make(map[string]*loop)}, nil
}

// Start begins to check a service, at once. In place of a check that runs it goes on from what that
// one has found out; otherwise healthy is what the service counts as until its checks say otherwise, and
// report is not called with that. cfg must be valid and must not be changed afterwards. A closed group
// starts nothing.
func (g *Group) Start(service string, cfg *Config, healthy bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	state := newState(cfg.Rise, cfg.Fall, healthy)
	if old := g.end(service); old != nil {
		healthy = old.state.healthy
		state = newState(cfg.Rise, cfg.Fall, healthy)
		state.unknown, state.told = old.state.unknown, old.state.told
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &loop{
		service: service, cfg: cfg, probe: g.probe(cfg), state: state,
		report: g.report, log: g.log.With(zap.String("service", service), zap.String("check", cfg.kind())), metrics: g.metrics,
		cancel: cancel, done: make(chan struct{}),
	}
	g.metrics.begin(service, healthy)
	g.loops[service] = l
	go l.run(ctx)
}

// Stop ends the check of a service and waits for it. A service that has none is fine.
func (g *Group) Stop(service string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.end(service) != nil {
		g.metrics.forget(service)
	}
}

// Close ends all checks and waits for them. It may be called repeatedly.
func (g *Group) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for _, l := range g.loops {
		l.cancel()
	}
	for service := range g.loops {
		g.end(service)
	}
}

// end expects mu to be held. It returns the loop that has ended, nil when there was none.
func (g *Group) end(service string) *loop {
	l := g.loops[service]
	if l == nil {
		return nil
	}
	l.cancel()
	<-l.done
	delete(g.loops, service)
	return l
}

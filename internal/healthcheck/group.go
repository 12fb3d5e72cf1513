package healthcheck

import (
	"context"
	"net"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
)

// Group checks the services of one node. It is safe for concurrent use.
type Group struct {
	opts    Options
	metrics *metrics // nil without opts.Registerer
	// probe is newProbe, except in tests.
	probe func(*Config) probe

	mu     sync.Mutex // guards the fields that follow; held while a loop ends, so that a service never has two
	loops  map[string]*loop
	closed bool
}

// Options holds what a group needs.
type Options struct {
	// Report is called with each change of a service's health, in the service's own goroutine:
	// failure is nil if the service is well. It must not block and must not call the group.
	Report func(service string, failure error)
	Log    *zap.Logger
	// Registerer gets metrics, labelled by service. nil means none.
	Registerer prometheus.Registerer
}

// NewGroup makes a group that checks nothing yet. The error comes from the registerer.
func NewGroup(opts Options) (*Group, error) {
	g := &Group{opts: opts, loops: make(map[string]*loop)}
	g.probe = func(c *Config) probe { return newProbe(c, new(net.Dialer).DialContext) }
	if opts.Registerer == nil {
		return g, nil
	}
	var err error
	g.metrics, err = newMetrics(opts.Registerer)
	return g, err
}

// Start begins to check a service, at once. If the service has a check already, the new one goes on
// from its state. Otherwise healthy is the state of the service until its checks change it; Report
// is not called for that. cfg must be valid and must not change afterwards. A closed group starts
// nothing.
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
		state.unknown, state.reported = old.state.unknown, old.state.reported
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &loop{
		service: service, cfg: cfg, probe: g.probe(cfg), state: state,
		report:  g.opts.Report,
		log:     g.opts.Log.With(zap.String("service", service), zap.String("check", strings.Join(cfg.kinds(), " "))),
		metrics: g.metrics,
		cancel:  cancel, done: make(chan struct{}),
	}
	g.metrics.begin(service, healthy)
	g.loops[service] = l
	go l.run(ctx)
}

// Stop ends the check of a service, if it has one, and waits for it.
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

// end returns the loop that has ended; nil if there was none. The caller holds mu.
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

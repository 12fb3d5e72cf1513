package worker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
)

// profile is what the node is and how it runs its services: as configured, and what of
// it Redis has been told.
type profile struct {
	// table is what jobs are run by; a job costs one load.
	table atomic.Pointer[table]
	// slots is the node's max_concurrency.
	slots atomic.Int64
	// doubted is true when Redis may have lost what it was told.
	doubted atomic.Bool

	mu sync.Mutex // guards the rest, and the making of tables
	// node is as configured, with the services that are out; what it refers to never changes.
	node     freeslot.Node
	handlers map[string]HandlerFunc
	// out are the services that are not healthy.
	out map[string]bool
	// number counts the changes, and told is the latest that Redis has; news is closed and
	// replaced when that moves on.
	number, told uint64
	news         chan struct{}
}

// table is a state of the handlers; it never changes.
type table struct {
	// run are those of the services that are offered; nil of one without a handler.
	run map[string]HandlerFunc
	// ever has every service that had a handler in the life of the worker.
	ever map[string]bool
}

func newProfile(node freeslot.Node) *profile {
	p := &profile{node: cloneNode(node), out: map[string]bool{}, news: make(chan struct{})}
	p.table.Store(&table{})
	p.slots.Store(int64(node.MaxConcurrency))
	return p
}

// cloneNode keeps the worker from what its caller does with slices and maps afterwards.
func cloneNode(n freeslot.Node) freeslot.Node {
	n.Services = slices.Clone(n.Services)
	n.Languages.ASR = slices.Clone(n.Languages.ASR)
	n.Languages.TTS = slices.Clone(n.Languages.TTS)
	n.Languages.Semantic = slices.Clone(n.Languages.Semantic)
	n.Pools = slices.Clone(n.Pools)
	n.Labels = maps.Clone(n.Labels)
	n.Features = maps.Clone(n.Features)
	return n
}

// withService is the node with a service, which it may have already.
func withService(n freeslot.Node, service string) freeslot.Node {
	if !hasService(n, service) {
		n.Services = append(slices.Clip(n.Services), freeslot.Service{Name: service})
	}
	return n
}

func hasService(n freeslot.Node, service string) bool {
	return slices.ContainsFunc(n.Services, func(s freeslot.Service) bool { return s.Name == service })
}

// set replaces node and handlers, and returns the number of the change. Services that stay
// keep their health, of the others unhealthy ones are out.
func (p *profile) set(node freeslot.Node, handlers map[string]HandlerFunc, unhealthy ...string) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, service := range unhealthy {
		if !hasService(p.node, service) {
			p.out[service] = true
		}
	}
	p.node, p.handlers = node, handlers
	maps.DeleteFunc(p.out, func(service string, _ bool) bool { return !hasService(node, service) })
	p.slots.Store(int64(node.MaxConcurrency))
	return p.changed()
}

// changed makes a new table; p.mu is held.
func (p *profile) changed() uint64 {
	t := &table{run: make(map[string]HandlerFunc, len(p.node.Services)), ever: maps.Clone(p.table.Load().ever)}
	if t.ever == nil {
		t.ever = make(map[string]bool, len(p.handlers))
	}
	for service := range p.handlers {
		t.ever[service] = true
	}
	for _, s := range p.node.Services {
		if !p.out[s.Name] {
			t.run[s.Name] = p.handlers[s.Name]
		}
	}
	p.table.Store(t)
	p.number++
	return p.number
}

// current is what Redis is to be told, without the services that are out, and its number.
func (p *profile) current() (freeslot.Node, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	node := p.node
	node.Services = slices.DeleteFunc(slices.Clone(node.Services), func(s freeslot.Service) bool { return p.out[s.Name] })
	return node, p.number
}

// reached notes that Redis has the numbered change.
func (p *profile) reached(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number > p.told {
		p.told = number
		close(p.news)
		p.news = make(chan struct{})
	}
}

// pending reports whether Redis is to be told, and what is closed with the next progress.
func (p *profile) pending() (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told < p.number, p.news
}

func (p *profile) has(number uint64) (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told >= number, p.news
}

// handler is that of a service. left is true when the node has run the service and does not
// at present: a job of it is for another node.
func (w *Worker) handler(service string) (fn HandlerFunc, left bool) {
	t := w.profile.table.Load()
	fn, offered := t.run[service]
	return fn, !offered && t.ever[service]
}

// Reconfigure makes node the profile of a worker, and handlers, by service, what runs its
// jobs, in place of what it had; services of handlers are added to the profile as by Handle. Before
// Start it does just that. The id must stay. An error of the arguments, a *freeslot.Error,
// is one before anything has changed.
//
// Running jobs go on with the handler they began with. Jobs of a service that has left
// which arrive or have not begun are handed back uncounted, to run elsewhere. With a
// smaller MaxConcurrency running jobs go on too, and others begin when enough have ended.
// A service that stays keeps the health that SetHealthy gave it; a new one is healthy, unless it is
// one of unhealthy: it is not offered before SetHealthy says so.
//
// Redis is told at once under the same epoch, and again until it has been, also when it is
// away; of several changes the last counts. Reconfigure waits for that until ctx ends. Its
// error then wraps ctx's, and the change stays in force. ErrStopped is returned when the
// worker has ended, or does so meanwhile.
//
// The maps and slices of the arguments are copied. Reconfigure may be called concurrently,
// and waits for a Start that is under way.
func (w *Worker) Reconfigure(ctx context.Context, node freeslot.Node, handlers map[string]HandlerFunc, unhealthy ...string) error {
	node, err := w.checkProfile(node, handlers, unhealthy)
	if err != nil {
		return err
	}
	w.mu.Lock()
	state := w.state
	if state == ended {
		w.mu.Unlock()
		return ErrStopped
	}
	number := w.profile.set(node, maps.Clone(handlers), unhealthy...)
	w.slots.resize(node.MaxConcurrency)
	w.ledger.resize(node.MaxConcurrency)
	w.mu.Unlock()
	if state == idle {
		return nil
	}
	w.log.Info("node.reconfigured", zap.Int("services", len(node.Services)), zap.Int("max_concurrency", node.MaxConcurrency))
	w.requestBeat()
	return w.awaitProfile(ctx, number)
}

// checkProfile returns the whole profile of a Reconfigure.
func (w *Worker) checkProfile(node freeslot.Node, handlers map[string]HandlerFunc, unhealthy []string) (freeslot.Node, error) {
	if node.ID != w.cfg.Node.ID {
		return node, freeslot.Invalid("node.node_id", "is %q, expected %q: the id of a running node cannot change", node.ID, w.cfg.Node.ID)
	}
	node = cloneNode(node)
	for _, service := range slices.Sorted(maps.Keys(handlers)) {
		if err := freeslot.ValidateName("handlers", service); err != nil {
			return node, err
		}
		if handlers[service] == nil {
			return node, freeslot.Invalid("handlers."+service, "is nil, expected a function")
		}
		node = withService(node, service)
	}
	for _, service := range unhealthy {
		if !hasService(node, service) {
			return node, freeslot.Invalid("unhealthy", "has %q, which is no service of the node", service)
		}
	}
	return node, node.Validate("node")
}

func (w *Worker) awaitProfile(ctx context.Context, number uint64) error {
	for {
		done, news := w.profile.has(number)
		if done {
			return nil
		}
		select {
		case <-news:
		case <-w.stop:
			return ErrStopped
		case <-w.done:
			return ErrStopped
		case <-ctx.Done():
			return fmt.Errorf("reconfigure node %s: Redis has not been told yet: %w", w.cfg.Node.ID, ctx.Err())
		}
	}
}

// SetHealthy takes a service out of the profile (false) or puts it back (true), at once and
// until the next call; MaxConcurrency stays. All services are healthy at first; one that is
// not to be offered from the start is taken out before Start. Jobs of a service that is out
// are treated like those of one that has left; see Reconfigure. Redis is told as there, and
// SetHealthy does not wait for it.
//
// A service that the profile does not have is an error, a *freeslot.Error. SetHealthy may be
// called concurrently.
func (w *Worker) SetHealthy(service string, healthy bool) error {
	changed, err := w.profile.setHealthy(service, healthy)
	if changed {
		w.requestBeat()
		w.log.Debug("service.health", zap.String("service", service), zap.Bool("healthy", healthy))
	}
	return err
}

// setHealthy reports whether that is a change.
func (p *profile) setHealthy(service string, healthy bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !hasService(p.node, service) {
		return false, freeslot.Invalid("service", "%q is not one of the node", service)
	}
	if p.out[service] == !healthy {
		return false, nil
	}
	if healthy {
		delete(p.out, service)
	} else {
		p.out[service] = true
	}
	p.changed()
	return true, nil
}

// doubt has the profile registered again with the next heartbeat that is answered: behind a
// broken connection there may be another server, without the last change. Repeating costs a look.
func (w *Worker) doubt() { w.profile.doubted.Store(true) }

// profileDue reports whether the fleet is to be told. Only the heartbeats' loop calls it.
func (w *Worker) profileDue() bool {
	pending, _ := w.profile.pending()
	return pending || w.profile.doubted.Load() || max(w.offers(), 1) != w.registered
}

// offers is how many slots the node has for jobs.
func (w *Worker) offers() int {
	return max(int(w.profile.slots.Load()-w.withheld.Load()), 0)
}

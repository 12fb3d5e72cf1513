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

// profile is the configured state of the node and its services, and how much of it Redis has.
type profile struct {
	// table holds the handlers; a job costs one load.
	table atomic.Pointer[table]
	// slots is the node's max_concurrency.
	slots atomic.Int64
	// doubted is true if Redis may have lost the profile.
	doubted atomic.Bool

	mu sync.Mutex // guards the rest, and the making of tables
	// node is the configured node, including the unhealthy services. The slices and maps in it
	// never change.
	node     freeslot.Node
	handlers map[string]HandlerFunc
	// unhealthy holds the services that are not offered.
	unhealthy map[string]bool
	// number counts the changes, and sent is the latest one that Redis has.
	number, sent uint64
	waiters      []profileWaiter
}

// profileWaiter waits until Redis has the numbered change.
type profileWaiter struct {
	number uint64
	known  chan struct{}
}

// table is a state of the handlers; it never changes.
type table struct {
	// run holds the handlers of the services that are offered; nil for a service without one.
	run map[string]HandlerFunc
	// ever holds every service that had a handler in the life of the worker.
	ever map[string]bool
}

func newProfile(node freeslot.Node) *profile {
	p := &profile{node: cloneNode(node), unhealthy: map[string]bool{}}
	p.table.Store(&table{})
	p.slots.Store(int64(node.MaxConcurrency))
	return p
}

// cloneNode copies the slices and maps, so that its caller may change its own.
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

// withService adds a service to the node unless it is there.
func withService(n freeslot.Node, service string) freeslot.Node {
	if !hasService(n, service) {
		n.Services = append(slices.Clip(n.Services), freeslot.Service{Name: service})
	}
	return n
}

func hasService(n freeslot.Node, service string) bool {
	return slices.ContainsFunc(n.Services, func(s freeslot.Service) bool { return s.Name == service })
}

// set replaces node and handlers. Services that stay keep their health; new ones are healthy unless
// unhealthy names them. known is closed once Redis has the change.
func (p *profile) set(
	node freeslot.Node, handlers map[string]HandlerFunc, unhealthy ...string,
) (known <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, service := range unhealthy {
		if !hasService(p.node, service) {
			p.unhealthy[service] = true
		}
	}
	p.node, p.handlers = node, handlers
	maps.DeleteFunc(p.unhealthy, func(service string, _ bool) bool { return !hasService(node, service) })
	p.slots.Store(int64(node.MaxConcurrency))
	p.changed()
	return p.wait()
}

// changed makes a new table. The caller holds p.mu.
func (p *profile) changed() {
	t := &table{run: make(map[string]HandlerFunc, len(p.node.Services)), ever: maps.Clone(p.table.Load().ever)}
	if t.ever == nil {
		t.ever = make(map[string]bool, len(p.handlers))
	}
	for service := range p.handlers {
		t.ever[service] = true
	}
	for _, s := range p.node.Services {
		if !p.unhealthy[s.Name] {
			t.run[s.Name] = p.handlers[s.Name]
		}
	}
	p.table.Store(t)
	p.number++
}

// current returns the profile for Redis, without the unhealthy services, and its number.
func (p *profile) current() (freeslot.Node, uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	node := p.node
	node.Services = slices.DeleteFunc(
		slices.Clone(node.Services), func(s freeslot.Service) bool { return p.unhealthy[s.Name] },
	)
	return node, p.number
}

// reached records that Redis has the numbered change.
func (p *profile) reached(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent = max(p.sent, number)
	p.waiters = slices.DeleteFunc(p.waiters, func(w profileWaiter) bool {
		if w.number > p.sent {
			return false
		}
		close(w.known)
		return true
	})
}

// pending reports whether Redis lacks a change.
func (p *profile) pending() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sent < p.number
}

// known returns a channel that is closed once Redis has all changes so far.
func (p *profile) known() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wait()
}

// wait does what known does. The caller holds p.mu.
func (p *profile) wait() <-chan struct{} {
	w := profileWaiter{p.number, make(chan struct{})}
	if p.sent >= p.number {
		close(w.known)
	} else {
		p.waiters = append(p.waiters, w)
	}
	return w.known
}

// handler returns the handler of a service. left is true if the node has run the service and does
// not run it at present: such a job is for another node.
func (w *Worker) handler(service string) (fn HandlerFunc, left bool) {
	t := w.profile.table.Load()
	fn, offered := t.run[service]
	return fn, !offered && t.ever[service]
}

// Reconfigure replaces the profile of a worker by node, and its handlers, by service, by handlers.
// Services of handlers are added to the profile as by Handle. The id must stay. With bad arguments
// nothing changes, and the error is a *freeslot.Error.
//
// Running jobs go on with the handler they began with. Jobs of a removed service that arrive or
// have not begun are handed back uncounted, to run elsewhere. With a smaller MaxConcurrency running
// jobs go on too, and others begin when enough have ended. A service that stays keeps the health
// that SetHealthy gave it. A new one is healthy, unless unhealthy names it: then it is not offered
// before a call of SetHealthy.
//
// The new profile goes to Redis at once, under the same epoch. It is sent again until it has
// arrived, also after an outage of Redis; only the last of several changes counts. Reconfigure
// waits for that until ctx ends. Its error then wraps ctx's, and the change stays in force. Before
// Start there is nothing to wait for. The error is ErrStopped when the worker has ended, or ends
// meanwhile.
//
// The maps and slices of the arguments are copied. Reconfigure may be called concurrently. During
// Start it waits for the registration too.
func (w *Worker) Reconfigure(
	ctx context.Context, node freeslot.Node, handlers map[string]HandlerFunc, unhealthy ...string,
) error {
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
	known := w.profile.set(node, maps.Clone(handlers), unhealthy...)
	w.slots.Resize(node.MaxConcurrency)
	w.ledger.resize(node.MaxConcurrency)
	w.mu.Unlock()
	if state == idle {
		return nil
	}
	w.log.Info(
		"node.reconfigured", zap.Int("services", len(node.Services)), zap.Int("max_concurrency", node.MaxConcurrency),
	)
	w.requestBeat()
	select {
	case <-known:
		return nil
	case <-w.stop:
		return ErrStopped
	case <-w.done:
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("reconfigure node %s: Redis does not have the new profile yet: %w", w.cfg.Node.ID, ctx.Err())
	}
}

// checkProfile returns the whole profile of a Reconfigure.
func (w *Worker) checkProfile(
	node freeslot.Node, handlers map[string]HandlerFunc, unhealthy []string,
) (freeslot.Node, error) {
	if node.ID != w.cfg.Node.ID {
		return node, freeslot.Invalid(
			"node.node_id", "is %q, expected %q: the id of a running node cannot change", node.ID, w.cfg.Node.ID,
		)
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

// SetHealthy takes a service out of the profile (false) or puts it back (true), at once and until
// the next call; MaxConcurrency stays. All services are healthy at first. To keep a service from
// being offered at the start, call SetHealthy before Start. Jobs of an unhealthy service are
// treated like jobs of a removed one; see Reconfigure. The change goes to Redis as it does there,
// but SetHealthy does not wait for it.
//
// The error is a *freeslot.Error when the profile does not have the service. SetHealthy may be
// called concurrently.
func (w *Worker) SetHealthy(service string, healthy bool) error {
	changed, err := w.profile.setHealthy(service, healthy)
	if changed {
		w.requestBeat()
		w.log.Debug("service.health", zap.String("service", service), zap.Bool("healthy", healthy))
	}
	return err
}

// setHealthy reports whether the call changed anything.
func (p *profile) setHealthy(service string, healthy bool) (bool, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !hasService(p.node, service) {
		return false, freeslot.Invalid("service", "%q is not one of the node", service)
	}
	if p.unhealthy[service] == !healthy {
		return false, nil
	}
	p.unhealthy[service] = !healthy
	p.changed()
	return true, nil
}

// doubt makes the worker register the profile again after the next answered heartbeat. Behind a
// broken connection there may be another server, without the last change. Repeating it costs one
// comparison.
func (w *Worker) doubt() { w.profile.doubted.Store(true) }

// profileDue reports whether Redis may lack the present profile. Only the heartbeat loop calls it.
func (w *Worker) profileDue() bool {
	return w.profile.pending() || w.profile.doubted.Load() || max(w.offers(), 1) != w.registered
}

// offers returns the number of slots that the node has for jobs.
func (w *Worker) offers() int {
	return max(int(w.profile.slots.Load()-w.withheld.Load()), 0)
}

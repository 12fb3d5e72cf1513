// Package pick chooses one instance of a service for each call. It does no I/O and starts nothing:
// lists come from a consumer, and callers say how their calls went.
//
// A Pick reads one atomic pointer and takes no lock. The first Pick that sees a new list prepares
// it, in milliseconds for 100,000 instances; meanwhile others use the previous list.
package pick

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/registry"
)

// ErrUnavailable is for clients that know that an instance takes no connections, but do not have
// the error of the operating system: wrap it in the error for Done.
var ErrUnavailable = errors.New("registry: instance takes no connections")

// ErrNoOther is returned by PickOther when there is no other instance.
var ErrNoOther = errors.New("registry: there is no other instance to use")

// Policy says how a Picker chooses.
type Policy string

// The policies. Only ConsistentHash reads keys. Random and RoundRobin ignore weights.
const (
	Random     Policy = "random"
	RoundRobin Policy = "round_robin"
	// Weighted chooses at random in proportion to weights.
	Weighted Policy = "weighted"
	// LeastLoaded draws two instances by weight, and takes the one with fewer calls under way
	// through this picker relative to its weight.
	LeastLoaded Policy = "least_loaded"
	// ConsistentHash leads a key to the same instance in every process, as long as that instance
	// has no more than LoadFactor times its share of the calls under way through this picker.
	ConsistentHash Policy = "consistent_hash"
)

// DefaultLoadFactor is the default of Config.LoadFactor.
const DefaultLoadFactor = 1.25

// Config says how a Picker chooses. The zero value chooses by weight.
type Config struct {
	// Policy is the policy; empty means Weighted.
	Policy Policy
	// Zone is the caller's own zone: instances whose metadata zone has this value are preferred. If
	// none of them is usable, all are used. Empty means that zones do not matter.
	Zone string
	// LoadFactor, at least 1, applies to ConsistentHash. Zero means DefaultLoadFactor.
	LoadFactor float64
	// Filter selects the instances to choose from; nil means all. A filter on metrics sees them as
	// they are in the consumer's lists: ConsumerOptions.Figures keeps them fresh.
	Filter *registry.Filter
	// Calls measures the time from a Pick to its Done; nil measures nothing.
	Calls *Calls
	// Rand returns random bits and is safe for concurrent use; Now returns the time. nil means the
	// functions of the standard library; tests set them.
	Rand func() uint64
	Now  func() time.Time
}

// WithDefaults returns a copy with its defaults filled in.
func (c Config) WithDefaults() Config {
	if c.Policy == "" {
		c.Policy = Weighted
	}
	if c.LoadFactor == 0 {
		c.LoadFactor = DefaultLoadFactor
	}
	if c.Rand == nil {
		c.Rand = rand.Uint64
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Validate returns an error that names every bad field.
func (c Config) Validate() error {
	var bad freeslot.FieldErrors
	switch c.Policy {
	case "", Random, RoundRobin, Weighted, LeastLoaded, ConsistentHash:
	default:
		bad.Addf("policy", "is %q, expected random, round_robin, weighted, least_loaded or consistent_hash", c.Policy)
	}
	if c.LoadFactor != 0 && !(c.LoadFactor >= 1 && c.LoadFactor <= 100) {
		bad.Addf("load_factor", "is %v, expected 1 to 100", c.LoadFactor)
	}
	return bad.Err()
}

// Lists returns the current list of a service, or nil if there is none yet. Each Pick calls it, so
// it should read an atomic pointer.
type Lists interface{ List() *registry.List }

// Picker chooses instances of one service. It is safe for concurrent use.
type Picker struct {
	cfg   Config
	lists Lists
	began time.Time
	// ready is the newest prepared list; nil before the first.
	ready atomic.Pointer[prepared]
	// preparing is held by the Pick that prepares a list.
	preparing sync.Mutex
	// next counts choices of RoundRobin.
	next atomic.Uint64
	// underWay counts calls, for policies that consider load.
	underWay atomic.Int64

	mu sync.Mutex
	// aside holds the instances that were set aside; some may be back. Guarded by mu. Invariant: at
	// most half of ready's instances are set aside and not back.
	aside []*state
}

// New returns a Picker. cfg must be valid.
func New(cfg Config, lists Lists) *Picker {
	p := &Picker{cfg: cfg.WithDefaults(), lists: lists}
	p.began = p.cfg.Now()
	p.next.Store(p.cfg.Rand() >> 1) // so that processes begin with different instances
	return p
}

// Picked is an instance for one call. Call Done exactly once.
type Picked struct {
	Instance *registry.Instance
	picker   *Picker
	state    *state
	began    time.Time // zero if it is not measured
}

// Pick chooses an instance for a call. Only ConsistentHash reads key. The error is ctx's, or a
// *registry.EmptyError.
func (p *Picker) Pick(ctx context.Context, key string) (Picked, error) {
	return p.pick(ctx, key, nil)
}

// PickOther chooses an instance for a second try: it does not choose the instance of the first. It
// fails as Pick does, or with ErrNoOther.
func (p *Picker) PickOther(ctx context.Context, key string, first Picked) (Picked, error) {
	return p.pick(ctx, key, first.state)
}

func (p *Picker) pick(ctx context.Context, key string, not *state) (Picked, error) {
	if err := ctx.Err(); err != nil {
		return Picked{}, err
	}
	if p.counts() {
		p.underWay.Add(1)
	}
	m, err := p.find(key, not)
	if err != nil {
		if p.counts() {
			p.underWay.Add(-1)
		}
		return Picked{}, err
	}
	d := Picked{Instance: m.instance, picker: p, state: m.state}
	if p.cfg.Calls != nil {
		d.began = p.cfg.Now()
	}
	return d, nil
}

func (p *Picker) find(key string, not *state) (*member, error) {
	for {
		ready := p.current()
		if len(ready.all.members) == 0 {
			return nil, ready.taken.EmptyError()
		}
		m := p.choose(&ready.local, key, not)
		if m == nil {
			m = p.choose(&ready.all, key, not)
		}
		switch {
		case m != nil:
			return m, nil
		case ready == p.ready.Load(): // all instances of an older list may be set aside
			return nil, ErrNoOther
		}
	}
}

// current returns the newest list, prepared. While another Pick prepares it, it returns the
// previous one.
func (p *Picker) current() *prepared {
	ready := p.ready.Load()
	if ready != nil && ready.list == p.lists.List() {
		return ready
	}
	if ready == nil {
		p.preparing.Lock()
	} else if !p.preparing.TryLock() {
		return ready
	}
	defer p.preparing.Unlock()
	list := p.lists.List() // read again: another Pick may have prepared a newer one
	if ready = p.ready.Load(); ready == nil || ready.list != list {
		ready = p.prepare(list, ready)
		p.publish(ready)
	}
	return ready
}

// Done records how the call went. An error that matches ErrUnavailable or ECONNREFUSED sets the
// instance aside for 1 s, and twice as long after each further one in a row, up to 30 s. nil is a
// success, which ends that. Other errors say nothing about the instance.
func (d Picked) Done(err error) {
	p, s := d.picker, d.state
	if p.cfg.Calls != nil {
		p.cfg.Calls.Add(d.Instance.Service, p.cfg.Now().Sub(d.began), err)
	}
	if p.counts() {
		p.underWay.Add(-1)
		s.underWay.Add(-1)
	}
	switch {
	case err == nil:
		if s.refusals.Load() != 0 {
			p.takeBack(s)
		}
	case errors.Is(err, ErrUnavailable) || errors.Is(err, syscall.ECONNREFUSED):
		p.setAside(s)
	}
}

// counts reports whether the policy considers calls under way.
func (p *Picker) counts() bool {
	return p.cfg.Policy == LeastLoaded || p.cfg.Policy == ConsistentHash
}

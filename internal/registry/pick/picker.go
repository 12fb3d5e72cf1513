// Package pick chooses one instance of a service for each call. It does no I/O and starts nothing:
// lists come from a consumer, and callers say how their calls went.
//
// A Pick reads one atomic pointer and takes no lock. The first Pick that sees a new list prepares
// it, in milliseconds for 100,000 instances; others go on with the last one meanwhile.
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

// ErrUnavailable is for the errors of clients that know that an instance takes no connections but
// do not have the error of the operating system: wrap it for Done.
var ErrUnavailable = errors.New("registry: instance takes no connections")

// ErrNoOther is returned by PickOther when there is no other instance.
var ErrNoOther = errors.New("registry: there is no other instance to use")

// Policy is how a Picker chooses.
type Policy string

// The policies. Only ConsistentHash reads keys, and RoundRobin alone does not regard weights at
// all, beside Random.
const (
	Random     Policy = "random"
	RoundRobin Policy = "round_robin"
	// Weighted is random in proportion to weights.
	Weighted Policy = "weighted"
	// LeastLoaded draws two instances by weight and takes the one with fewer calls under way
	// through this picker for its weight.
	LeastLoaded Policy = "least_loaded"
	// ConsistentHash leads a key to the same instance in every process, while that has no more
	// calls under way through this picker than LoadFactor times its share.
	ConsistentHash Policy = "consistent_hash"
)

// DefaultLoadFactor bounds the load of consistent hashing.
const DefaultLoadFactor = 1.25

// Config is how a Picker chooses. The zero value is by weight.
type Config struct {
	// Policy is Weighted if it is empty.
	Policy Policy
	// Zone is the caller's own: instances with this value of the metadata zone are preferred. When
	// it has none to use, all are taken. Empty means that zones do not matter.
	Zone string
	// LoadFactor, at least 1, is for ConsistentHash. Zero means DefaultLoadFactor.
	LoadFactor float64
	// Filter takes the instances to choose from; nil takes all. One of metrics knows them as they
	// are in the consumer's lists: ConsumerOptions.Figures keeps them fresh.
	Filter *registry.Filter
	// Calls measures the time from a Pick to its Done; nil measures nothing.
	Calls *Calls
	// Rand are random bits, safe for concurrent use, and Now the time. nil means those of the
	// standard library; tests set them.
	Rand func() uint64
	Now  func() time.Time
}

// WithDefaults returns a copy with defaults in place of zero values.
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

// Validate names every bad field.
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

// Lists gives the current list of a service, or nil where there is none yet. It is called by each
// Pick, so it should read an atomic pointer.
type Lists interface{ List() *registry.List }

// Picker chooses instances of one service. It is safe for concurrent use.
type Picker struct {
	cfg   Config
	lists Lists
	began time.Time
	// ready is the newest list that was prepared, nil before the first.
	ready atomic.Pointer[prepared]
	// preparing is held by the Pick that prepares a list.
	preparing sync.Mutex
	// next counts choices of RoundRobin.
	next atomic.Uint64
	// underWay counts calls, for policies that regard load.
	underWay atomic.Int64

	mu sync.Mutex
	// aside are the instances that were set aside; some may be back. Guarded by mu.
	// Invariant: those that are not back are at most half of ready's.
	aside []*state
}

// New returns a Picker over valid lists. cfg must be valid.
func New(cfg Config, lists Lists) *Picker {
	p := &Picker{cfg: cfg.WithDefaults(), lists: lists}
	p.began = p.cfg.Now()
	p.next.Store(p.cfg.Rand() >> 1) // so that not all processes begin with the same instance
	return p
}

// Picked is an instance for one call. Call Done exactly once.
type Picked struct {
	Instance *registry.Instance
	picker   *Picker
	state    *state
	began    time.Time // zero if it is not measured
}

// Pick chooses an instance for a call. Policies other than ConsistentHash do not look at key. The
// error is ctx's, or a *registry.EmptyError.
func (p *Picker) Pick(ctx context.Context, key string) (Picked, error) {
	return p.pick(ctx, key, nil)
}

// PickOther is Pick for a second try: it does not choose the instance of the first. Its error may
// be ErrNoOther, too.
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
		case ready == p.ready.Load(): // of an older list all may be set aside
			return nil, ErrNoOther
		}
	}
}

// current returns the newest list, prepared; or the last one while another Pick prepares it.
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

// Done says how the call went. An error that matches ErrUnavailable or ECONNREFUSED sets the
// instance aside: for 1 s, and twice as long after each further one in a row, up to 30 s. nil is a
// success, which ends that. Other errors say nothing of the instance.
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

// counts reports whether the policy regards calls under way.
func (p *Picker) counts() bool {
	return p.cfg.Policy == LeastLoaded || p.cfg.Policy == ConsistentHash
}

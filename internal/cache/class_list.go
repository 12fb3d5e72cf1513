package cache

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// classLimit and listLimit bound the candidate lists that are kept: their number,
// and the candidates in all of them, at 8 bytes each. (A class whose jobs carry
// affinity keys has a ring besides, of up to 96 bytes a node.) Clients name the
// classes, so there could be any number; past a limit those are dropped that were not
// used lately, and come back at the cost of one match per node.
const (
	classLimit = 4096
	listLimit  = 16 << 20
)

// classList is one class's candidate list and what it was built from.
type classList struct {
	built atomic.Pointer[builtClass]
	// used is the age of its last use.
	used atomic.Uint32
	// dropped is guarded by rebuild: its list no longer counts.
	dropped bool
	// rebuild is held by the one goroutine that builds a new list, or drops the class.
	rebuild  sync.Mutex
	identity *selection.Identity
}

type builtClass struct {
	// profiles is the cache's profile count when the list was begun: the list is
	// current as long as the two are equal.
	profiles uint64
	list     *selection.Class
	// config is how nodes were chosen then.
	config *selection.Config
	// restUntil is when a new one may be made for profiles that changed.
	restUntil int64
}

// restShare keeps a fleet that registers node by node from having every list made
// anew for every node: building takes a tenth of one core for a class at most.
const restShare = 9

// Choose appends candidates for "service with requirement r", which must be valid,
// to dst as selection.Class.Choose does, from the list that Class gives.
func (c *Cache) Choose(dst []*selection.Node, service string, r *freeslot.Requirement, q *selection.Query, rnd *selection.Source) []*selection.Node {
	return c.Class(service, r).Choose(dst, q, rnd)
}

// Class returns the candidates of "service with requirement r", which must be
// valid. While somebody else brings the list up to date, and for nine times as long
// as that took, the former one is returned: a choice never waits. Use Settle before
// telling a client that no node fits.
func (c *Cache) Class(service string, r *freeslot.Requirement) *selection.Class {
	cl := c.class(service, r)
	if age := c.age.Load(); cl.used.Load() != age {
		cl.used.Store(age)
	}
	built := cl.built.Load()
	if built != nil && built.profiles == c.profiles.Load() {
		return built.list
	}
	return c.renew(cl, built)
}

func (c *Cache) renew(cl *classList, built *builtClass) *selection.Class {
	if built == nil {
		return c.settle(cl)
	}
	// Another configuration does not wait: nobody applies one for every node.
	cfg := c.selection.Load()
	rests := c.clock.now() < built.restUntil && built.config == cfg
	if built.config != cfg && (cfg.Pauses() || built.config.Pauses()) {
		return c.settle(cl) // what is paused must not begin, and what no longer is must not wait
	}
	if rests || !cl.rebuild.TryLock() {
		return built.list
	}
	defer cl.rebuild.Unlock()
	return c.build(cl)
}

// Settle is Class, but waits for a list that knows every profile that the cache
// knew when it was called.
func (c *Cache) Settle(service string, r *freeslot.Requirement) *selection.Class {
	return c.settle(c.class(service, r))
}

func (c *Cache) canonical(service string, r *freeslot.Requirement) *classList {
	var buf [256]byte
	key := string(class.AppendCanonical(buf[:0], service, r))
	if cl, ok := c.classes.Load(key); ok {
		return cl
	}
	c.makeRoom()
	cl, _ := c.classes.LoadOrStore(key, c.newClass(service, r))
	return cl
}

func (c *Cache) newClass(service string, r *freeslot.Requirement) *classList {
	cl := &classList{identity: selection.NewIdentity(service, r)}
	cl.used.Store(c.age.Load())
	return cl
}

// fill is how much of the limits is taken, in parts of 1.
func (c *Cache) fill() float64 {
	return max(float64(c.classes.Size())/classLimit, float64(c.listed.Load())/float64(c.listLimit))
}

// makeRoom begins a new age with each eighth of the limits that is filled. At the
// limit the classes are dropped that were not used in the present age, and if that
// makes too little room then any, down to three quarters.
func (c *Cache) makeRoom() {
	if c.fill() < c.agesAt.Load() {
		return
	}
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	now := c.fill()
	if now < c.agesAt.Load() {
		return // somebody else was first
	}
	if now >= 1 {
		c.metrics.classSweeps.Inc()
		c.dropWhere(func(cl *classList) bool { return cl.used.Load() != c.age.Load() })
		c.dropWhere(func(*classList) bool { return c.fill() > 0.75 })
		c.forgetDropped()
		now = c.fill()
	}
	c.age.Add(1)
	c.agesAt.Store(min(now+0.125, 1))
}

func (c *Cache) dropWhere(unwanted func(*classList) bool) {
	c.classes.Range(func(key string, cl *classList) bool {
		if unwanted(cl) {
			c.drop(key, cl)
		}
		return true
	})
}

func (c *Cache) drop(key string, cl *classList) {
	c.classes.Delete(key)
	cl.rebuild.Lock()
	defer cl.rebuild.Unlock()
	cl.dropped = true
	if built := cl.built.Load(); built != nil {
		c.listed.Add(-int64(built.list.Fits()))
	}
	c.metrics.classesDropped.Inc()
}

func (cl *classList) isDropped() bool {
	cl.rebuild.Lock()
	defer cl.rebuild.Unlock()
	return cl.dropped
}

func (c *Cache) settle(cl *classList) *selection.Class {
	// Not the count of when the lock is had: who waits while profiles go on changing
	// would have a list made each.
	want := c.profiles.Load()
	cl.rebuild.Lock()
	defer cl.rebuild.Unlock()
	if built := cl.built.Load(); built != nil && built.profiles >= want {
		return built.list
	}
	return c.build(cl)
}

// build makes a new list; cl.rebuild is held. The count is read before the nodes:
// a profile that changes in between makes the list out of date, never falsely
// current.
func (c *Cache) build(cl *classList) *selection.Class {
	begin, profiles, config := c.clock.now(), c.profiles.Load(), c.selection.Load()
	nodes := make([]*selection.Node, 0, c.nodes.Size())
	c.nodes.Range(func(_ string, e *entry) bool {
		nodes = append(nodes, e.node)
		return true
	})
	list := cl.identity.NewClass(c.share.Load(), nodes, config)
	if !cl.dropped {
		c.listed.Add(int64(list.Fits()))
		if former := cl.built.Load(); former != nil {
			c.listed.Add(-int64(former.list.Fits()))
		}
	}
	end := c.clock.now()
	next := &builtClass{list: list, profiles: profiles, config: config, restUntil: end + restShare*(end-begin)}
	cl.built.Store(next)
	return next.list
}

// fraction is an atomic number from 0 to 1.
type fraction struct{ bits atomic.Uint64 }

func (s *fraction) Load() float64   { return math.Float64frombits(s.bits.Load()) }
func (s *fraction) Store(f float64) { s.bits.Store(math.Float64bits(f)) }

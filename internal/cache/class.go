package cache

import (
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
)

// classLimit and listLimit bound the candidate lists that are kept: their number,
// and the candidates in all of them (8 bytes each, and as much again at worst).
// Clients name the classes, so there could be any number; past a limit all are
// dropped and those in use come back at the cost of one match per node.
const (
	classLimit = 4096
	listLimit  = 4 << 20
)

// class is one class's candidate list and what it was built from.
type class struct {
	service     string
	requirement freeslot.Requirement
	built       atomic.Pointer[builtClass]
	// rebuild is held by the one goroutine that builds a new list.
	rebuild sync.Mutex
}

type builtClass struct {
	list *selection.Class
	// profiles is the cache's profile count when the list was begun: the list is
	// current as long as the two are equal.
	profiles uint64
	// restUntil is Now from which on Class makes a new one.
	restUntil int64
}

// restShare keeps a fleet that registers node by node from having every list made
// anew for every node: building takes a tenth of one core for a class at most.
const restShare = 9

// Class returns the candidates of "service with requirement r", which must be
// valid. While somebody else brings the list up to date, and for nine times as long
// as that took, the former one is returned: a choice never waits. Use Settled before
// telling a client that no node fits.
func (c *Cache) Class(service string, r *freeslot.Requirement) *selection.Class {
	cl := c.class(service, r)
	built := cl.built.Load()
	if built != nil && built.profiles == c.profiles.Load() {
		return built.list
	}
	if built == nil {
		return c.settle(cl)
	}
	if c.Now() < built.restUntil || !cl.rebuild.TryLock() {
		return built.list
	}
	defer cl.rebuild.Unlock()
	return c.build(cl)
}

// Settled is Class, but waits for a list that knows every profile that the cache
// knew when it was called.
func (c *Cache) Settled(service string, r *freeslot.Requirement) *selection.Class {
	return c.settle(c.class(service, r))
}

func (c *Cache) class(service string, r *freeslot.Requirement) *class {
	var buf [256]byte
	key := string(r.AppendClass(buf[:0], service))
	if cl, ok := c.classes.Load(key); ok {
		return cl
	}
	if c.classes.Size() >= classLimit || c.listed.Load() >= c.listLimit {
		c.classes.Clear()
		c.listed.Store(0)
		c.metrics.classesDropped.Inc()
	}
	cl, _ := c.classes.LoadOrStore(key, &class{service: service, requirement: *r})
	return cl
}

func (c *Cache) settle(cl *class) *selection.Class {
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
func (c *Cache) build(cl *class) *selection.Class {
	begin, profiles := c.Now(), c.profiles.Load()
	nodes := make([]*selection.Node, 0, c.nodes.Size())
	c.nodes.Range(func(_ string, e *entry) bool {
		nodes = append(nodes, e.node.Load())
		return true
	})
	list := selection.NewClass(nodes, c.cfg.Pools, cl.service, &cl.requirement)
	c.listed.Add(int64(list.Fits()))
	if former := cl.built.Load(); former != nil {
		c.listed.Add(-int64(former.list.Fits()))
	}
	end := c.Now()
	cl.built.Store(&builtClass{list: list, profiles: profiles, restUntil: end + restShare*(end-begin)})
	return list
}

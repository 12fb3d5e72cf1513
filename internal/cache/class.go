package cache

import (
	"maps"
	"slices"
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

// Requirements as stated are remembered with their class: lookupSets times
// lookupWays of them. A set that is full forgets one. Four ways keep a thousand
// spellings in use at a time from displacing each other for ever.
const (
	lookupSets = 2048
	lookupWays = 4
)

type lookupSet [lookupWays]atomic.Pointer[lookup]

// lookup is immutable.
type lookup struct {
	hash        uint64
	service     string
	requirement freeslot.Requirement
	class       *class
}

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
	built := cl.built.Load()
	if built != nil && built.profiles == c.profiles.Load() {
		return built.list
	}
	return c.renew(cl, built)
}

func (c *Cache) renew(cl *class, built *builtClass) *selection.Class {
	if built == nil {
		return c.settle(cl)
	}
	// Another configuration does not wait: nobody applies one for every node.
	rests := c.clock.now() < built.restUntil && built.config == c.selection.Load()
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

// class finds the class of a requirement as it is stated; most of them are stated
// in the same words again and again, which saves bringing them into canonical form.
func (c *Cache) class(service string, r *freeslot.Requirement) *class {
	hash := r.ClassHash(service)
	set := &c.lookups[hash%lookupSets]
	for i := range set {
		l := set[i].Load()
		if l != nil && l.hash == hash && l.service == service && freeslot.SameRequirement(&l.requirement, r) {
			return l.class
		}
	}
	return c.remember(set, hash, service, r)
}

// remember puts the class into a free place of the set, or else into one that the
// hash names, so that two that meet in a set do not take turns in one place.
func (c *Cache) remember(set *lookupSet, hash uint64, service string, r *freeslot.Requirement) *class {
	cl := c.canonical(service, r)
	l := &lookup{hash: hash, service: service, requirement: clone(r), class: cl}
	for i := range set {
		if set[i].CompareAndSwap(nil, l) {
			return cl
		}
	}
	set[hash>>32%lookupWays].Store(l)
	return cl
}

func (c *Cache) canonical(service string, r *freeslot.Requirement) *class {
	var buf [256]byte
	key := string(r.AppendClass(buf[:0], service))
	if cl, ok := c.classes.Load(key); ok {
		return cl
	}
	if c.classes.Size() >= classLimit || c.listed.Load() >= c.listLimit {
		c.dropClasses()
	}
	cl, _ := c.classes.LoadOrStore(key, &class{service: service, requirement: clone(r)})
	return cl
}

func (c *Cache) dropClasses() {
	c.classes.Clear()
	for i := range c.lookups {
		for j := range c.lookups[i] {
			c.lookups[i][j].Store(nil)
		}
	}
	c.listed.Store(0)
	c.metrics.classesDropped.Inc()
}

// clone is a requirement that shares nothing with its caller's.
func clone(r *freeslot.Requirement) freeslot.Requirement {
	out := *r
	out.Services = slices.Clone(r.Services)
	out.Labels = maps.Clone(r.Labels)
	out.LabelRules = slices.Clone(r.LabelRules)
	for i := range out.LabelRules {
		out.LabelRules[i].Values = slices.Clone(out.LabelRules[i].Values)
	}
	return out
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
	begin, profiles, config := c.clock.now(), c.profiles.Load(), c.selection.Load()
	nodes := make([]*selection.Node, 0, c.nodes.Size())
	c.nodes.Range(func(_ string, e *entry) bool {
		nodes = append(nodes, e.node)
		return true
	})
	list := selection.NewClass(nodes, config, cl.service, &cl.requirement)
	c.listed.Add(int64(list.Fits()))
	if former := cl.built.Load(); former != nil {
		c.listed.Add(-int64(former.list.Fits()))
	}
	end := c.clock.now()
	cl.built.Store(&builtClass{list: list, profiles: profiles, config: config, restUntil: end + restShare*(end-begin)})
	return list
}

package cache

import (
	"sync"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// classLimit bounds the number of candidate lists. listLimit bounds the candidates in all of them,
// at 8 bytes each. (A class whose jobs have affinity keys also has a ring of up to 48 bytes a
// node.) The limits are needed because clients name the classes. Past a limit the cache drops the
// classes that were not used lately. They come back at the cost of one match per node.
const (
	classLimit = 4096
	listLimit  = 16 << 20
)

// classList holds one class's candidate list and what it was built from.
type classList struct {
	built atomic.Pointer[builtClass]
	// used is the age at which it was last used.
	used atomic.Int64
	// rebuild is held by the goroutine that builds a new list, or drops the class.
	rebuild  sync.Mutex
	dropped  bool // guarded by rebuild; if true, its list no longer counts
	identity *selection.Identity
}

type builtClass struct {
	// profiles is the cache's count of profile changes from before the list was built. The list is
	// current while the two are equal.
	profiles uint64
	list     *selection.Class
	// config is the configuration that the list was built with.
	config *selection.Config
	// restUntil is the time from which changed profiles can cause the next build.
	restUntil int64
}

// lookupLimit bounds how many requirements are remembered as their clients stated them. Past it the
// cache forgets all, and they come back at the cost of one canonical form each. lookupParts bounds
// the size of a remembered requirement, because clients choose it.
const (
	lookupLimit = 16 << 10
	lookupParts = 32
)

// lookup remembers the class of a requirement as a client stated it. It is immutable.
type lookup struct {
	service     string
	requirement freeslot.Requirement
	class       *classList
}

// restShare is how many times the duration of its build a list rests. So while a fleet registers
// node by node, building takes at most a tenth of one core for a class.
const restShare = 9

// Class returns the candidates of "service with requirement r". r must be valid. While another
// goroutine builds a new list, and for nine times as long as that took, Class returns the former
// list: a choice never waits. Use Settle before you answer a client that no node fits.
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

// class returns the class of a requirement. Most requirements repeat in the same words. Remembering
// them saves the canonical form, which costs more than a choice.
func (c *Cache) class(service string, r *freeslot.Requirement) *classList {
	if len(r.Services)+len(r.Labels)+len(r.LabelRules)+len(r.Features) > lookupParts {
		return c.canonical(service, r)
	}
	hash := class.Hash(service, r)
	if l, ok := c.lookups.Load(hash); ok && l.service == service && class.Same(&l.requirement, r) {
		return l.class
	}
	cl := c.canonical(service, r)
	if c.lookups.Size() >= lookupLimit {
		c.lookups.Clear()
	}
	// Of two requirements with one hash, the later one replaces the former.
	c.lookups.Store(hash, &lookup{service: service, requirement: r.Clone(), class: cl})
	return cl
}

// canonical returns the class by the form that all spellings of a requirement share.
func (c *Cache) canonical(service string, r *freeslot.Requirement) *classList {
	var buf [256]byte
	key := string(class.AppendCanonical(buf[:0], service, r))
	if cl, ok := c.classes.Load(key); ok {
		return cl
	}
	c.makeRoom()
	fresh := &classList{identity: selection.NewIdentity(service, r)}
	fresh.used.Store(c.age.Load())
	cl, _ := c.classes.LoadOrStore(key, fresh)
	return cl
}

func (c *Cache) renew(cl *classList, built *builtClass) *selection.Class {
	cfg := c.selection.Load()
	switch {
	case built == nil:
		return c.settle(cl)
	case built.config != cfg && (cfg.Pauses() || built.config.Pauses()):
		return c.settle(cl) // a paused job must not start, and a resumed one must not wait
	case built.config == cfg && c.clock.now() < built.restUntil: // a new configuration does not rest
		return built.list
	case !cl.rebuild.TryLock():
		return built.list
	}
	defer cl.rebuild.Unlock()
	return c.build(cl)
}

// Settle is Class, but waits for a list with every profile that the cache knew at the time of the
// call.
func (c *Cache) Settle(service string, r *freeslot.Requirement) *selection.Class {
	return c.settle(c.class(service, r))
}

// fullEighths is the fill at the limits.
const fullEighths = 8

// fill returns how much of the limits is used, in eighths.
func (c *Cache) fill() int64 {
	return max(int64(c.classes.Size())*fullEighths/classLimit, c.listed.Load()*fullEighths/c.listLimit)
}

// makeRoom starts a new age each time that another eighth of the limits is filled. At the limits it
// drops the classes that were not used in the present age. If that makes too little room, it drops
// any classes, down to three quarters.
func (c *Cache) makeRoom() {
	if c.fill() < c.nextAge.Load() {
		return
	}
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	if c.fill() < c.nextAge.Load() {
		return // another goroutine was first
	}
	if c.fill() >= fullEighths {
		c.metrics.classSweeps.Inc()
		c.drop(func(cl *classList) bool { return cl.used.Load() != c.age.Load() })
		c.drop(func(*classList) bool { return c.fill() >= fullEighths*3/4 })
		c.lookups.Clear()
	}
	c.age.Add(1)
	c.nextAge.Store(min(c.fill()+1, fullEighths))
}

func (c *Cache) drop(unwanted func(*classList) bool) {
	for key, cl := range c.classes.Range {
		if !unwanted(cl) {
			continue
		}
		c.classes.Delete(key)
		cl.rebuild.Lock()
		cl.dropped = true
		if built := cl.built.Load(); built != nil {
			c.listed.Add(-int64(built.list.Fits()))
		}
		cl.rebuild.Unlock()
		c.metrics.classesDropped.Inc()
	}
}

func (c *Cache) settle(cl *classList) *selection.Class {
	// The count is read before the lock: with a later one, each waiting caller would build a list
	// of its own while profiles keep changing.
	want := c.profiles.Load()
	cl.rebuild.Lock()
	defer cl.rebuild.Unlock()
	if built := cl.built.Load(); built != nil && built.profiles >= want {
		return built.list
	}
	return c.build(cl)
}

// build makes a new list. The caller holds cl.rebuild. It reads the count before the nodes: if a
// profile changes in between, the list is out of date, but never falsely current.
func (c *Cache) build(cl *classList) *selection.Class {
	begin, profiles, config := c.clock.now(), c.profiles.Load(), c.selection.Load()
	nodes := make([]*selection.Node, 0, c.nodes.Size())
	for _, e := range c.nodes.Range {
		nodes = append(nodes, e.node)
	}
	list := cl.identity.NewClass(c.share.Load(), nodes, config)
	if !cl.dropped {
		c.listed.Add(int64(list.Fits()))
		if former := cl.built.Load(); former != nil {
			c.listed.Add(-int64(former.list.Fits()))
		}
	}
	end := c.clock.now()
	cl.built.Store(&builtClass{list: list, profiles: profiles, config: config, restUntil: end + restShare*(end-begin)})
	return list
}

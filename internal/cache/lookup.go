package cache

import (
	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
)

// lookupLimit bounds how many requirements are remembered in the words of their clients;
// beyond it all are forgotten, and come back at the cost of one canonical form each.
// lookupParts bounds what is remembered of one: clients state what they like.
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

// class finds the class of a requirement. Most requirements come in the same words again
// and again; remembering them saves the canonical form, which costs more than a choice.
func (c *Cache) class(service string, r *freeslot.Requirement) *classList {
	if len(r.Services)+len(r.Labels)+len(r.LabelRules) > lookupParts {
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
	// Of two requirements with one hash the later one has the place.
	c.lookups.Store(hash, &lookup{service: service, requirement: r.Clone(), class: cl})
	return cl
}

// forgetDropped forgets the requirements whose class was dropped.
func (c *Cache) forgetDropped() {
	c.lookups.Range(func(hash uint64, l *lookup) bool {
		if l.class.isDropped() {
			c.lookups.Delete(hash)
		}
		return true
	})
}

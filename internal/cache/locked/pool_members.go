package locked

import (
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// members is the pool members cache: for each class the nodes that fit it.
type members struct {
	mu    sync.RWMutex // guards lists, and class and profiles of each
	lists lists
}

// of returns the candidates for the class in snap. With settle it waits for a list
// that is current; without, a list that somebody else is rebuilding is used as it was,
// unless it is of another configuration: what is paused must not begin.
func (m *members) of(snap *Snapshot, service string, r *freeslot.Requirement, settle bool) *selection.Class {
	hash := class.Hash(service, r)
	m.mu.RLock()
	l := m.lists.find(hash, service, r)
	var former *selection.Class
	if l != nil {
		former = l.class
		if former != nil && l.profiles >= snap.profiles {
			m.mu.RUnlock()
			return former
		}
	}
	m.mu.RUnlock()
	if l == nil {
		m.mu.Lock()
		l = m.lists.findOrAdd(hash, service, r)
		m.mu.Unlock()
	}
	if settle || former == nil || former.ConfigVersion() != versionOf(snap.config) {
		l.rebuild.Lock()
	} else if !l.rebuild.TryLock() {
		return former
	}
	defer l.rebuild.Unlock()
	return m.build(l, snap)
}

func versionOf(c *selection.Config) uint64 {
	if c == nil {
		return 0
	}
	return c.Version
}

// build makes the list anew, unless somebody else just did; l.rebuild is held.
func (m *members) build(l *list, snap *Snapshot) *selection.Class {
	m.mu.RLock()
	class, profiles := l.class, l.profiles
	m.mu.RUnlock()
	if class != nil && profiles >= snap.profiles {
		return class
	}
	class = selection.NewClass(snap.candidates(), snap.config, l.service, &l.requirement)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists.set(l, class, snap.profiles)
	return class
}

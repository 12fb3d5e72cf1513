package locked

import (
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// listLimit and candidateLimit bound the candidate lists that are kept: clients name the classes,
// so there could be any number. Past a limit all are dropped. The ones in use come back at the cost
// of one match for each node.
const (
	listLimit      = 4096
	candidateLimit = 4 << 20
)

// members is the pool members cache: for each class the nodes that fit it.
type members struct {
	mu     sync.RWMutex // guards all below, and class and profiles of each list
	byHash map[uint64]*list
	// candidates is about the number of nodes in all lists.
	candidates int
}

// list is the candidates of one class.
type list struct {
	identity *selection.Identity
	// class is nil until the list has been built.
	class *selection.Class
	// profiles is the snapshot's number when the list was built: the list is current while
	// snapshots have that number.
	profiles uint64
	// rebuild is held by the one reader that builds the list. It is taken before members.mu, never
	// after.
	rebuild sync.Mutex
}

func newMembers() *members { return &members{byHash: make(map[uint64]*list)} }

// of returns the candidates for the class in snap. With settle it waits for a current list. Without
// it, it returns the former list while another reader rebuilds it, unless that list is of another
// configuration: a paused job must not start.
func (m *members) of(snap *Snapshot, service string, r *freeslot.Requirement, settle bool) *selection.Class {
	l, former := m.list(class.Hash(service, r), service, r)
	if current := m.current(l, snap); current != nil {
		return current
	}
	if settle || former == nil || former.ConfigVersion() != snap.config.Version {
		l.rebuild.Lock()
	} else if !l.rebuild.TryLock() {
		return former
	}
	defer l.rebuild.Unlock()
	if current := m.current(l, snap); current != nil {
		return current // another reader has just built it
	}
	next := l.identity.NewClass(nil, snap.candidates(), snap.config)
	m.set(l, next, snap.profiles)
	return next
}

// list finds the list of a class, with its last candidates, or adds an empty one. The later of two
// requirements with one hash takes the place.
func (m *members) list(hash uint64, service string, r *freeslot.Requirement) (*list, *selection.Class) {
	m.mu.RLock()
	l := m.byHash[hash]
	if l != nil && l.identity.Is(service, r) {
		defer m.mu.RUnlock()
		return l, l.class
	}
	m.mu.RUnlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if l = m.byHash[hash]; l != nil && l.identity.Is(service, r) {
		return l, l.class
	}
	if len(m.byHash) >= listLimit || m.candidates >= candidateLimit {
		clear(m.byHash)
		m.candidates = 0
	}
	l = &list{identity: selection.NewIdentity(service, r)}
	m.byHash[hash] = l
	return l, nil
}

// current returns the list's candidates if they are of the snapshot or a later one, else nil.
func (m *members) current(l *list, snap *Snapshot) *selection.Class {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if l.profiles < snap.profiles {
		return nil
	}
	return l.class
}

func (m *members) set(l *list, next *selection.Class, profiles uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.class != nil {
		m.candidates -= l.class.Fits()
	}
	m.candidates += next.Fits()
	l.class, l.profiles = next, profiles
}

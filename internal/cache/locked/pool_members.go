package locked

import (
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// listLimit and candidateLimit bound the candidate lists that are kept, because clients name the
// classes. Past a limit all are dropped. The ones in use come back at the cost of one match for
// each node.
const (
	listLimit      = 4096
	candidateLimit = 4 << 20
)

// members is the pool members cache: it holds for each class the nodes that fit it.
type members struct {
	mu     sync.RWMutex // guards everything below, and class and profiles of each list
	byHash map[uint64]*list
	// candidates is about the number of nodes in all lists.
	candidates int
}

// list holds the candidates of one class.
type list struct {
	identity *selection.Identity
	// class is nil until the list is built.
	class *selection.Class
	// profiles is the snapshot's number at the time of the build. The list is current while
	// snapshots have that number.
	profiles uint64
	// rebuild is held by the reader that builds the list. It is taken before members.mu, never
	// after.
	rebuild sync.Mutex
}

func newMembers() *members { return &members{byHash: make(map[uint64]*list)} }

// of returns the candidates for the class in snap. If settle is true, it waits for a current list.
// Otherwise it returns the former list while another reader builds a new one, unless the former
// list belongs to another configuration: a paused job must not start.
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

// list returns the list of a class, with its last candidates, or adds an empty one. Of two
// requirements with one hash, the later one replaces the former.
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

// current returns the list's candidates if they come from the snapshot or a later one, otherwise
// nil.
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

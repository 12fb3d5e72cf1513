package locked

import (
	"maps"
	"slices"
	"sync"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

// listLimit and candidateLimit bound the candidate lists that are kept: clients name
// the classes, so there could be any number. Past one all are dropped, and those in
// use come back at the cost of one match per node.
const (
	listLimit      = 4096
	candidateLimit = 4 << 20
)

// lists are candidate lists by requirement as it is stated. It is guarded by the lock
// of whoever holds it.
type lists struct {
	byHash map[uint64]*list
	// candidates is about the number of nodes in all lists.
	candidates int
}

// list is the candidates of one class. service and requirement never change.
type list struct {
	service     string
	requirement freeslot.Requirement
	// class is nil until the list has been built.
	class *selection.Class
	// profiles is the snapshot's when the list was built, for State: the list is
	// current while snapshots have that number.
	profiles uint64
	// rebuild is held by the one reader that builds the list, for State. It is taken
	// before the lock that guards class and profiles, never after.
	rebuild sync.Mutex
}

func newLists() lists { return lists{byHash: make(map[uint64]*list)} }

func (ls *lists) find(hash uint64, service string, r *freeslot.Requirement) *list {
	l := ls.byHash[hash]
	if l == nil || l.service != service || !class.Same(&l.requirement, r) {
		return nil
	}
	return l
}

// findOrAdd lets the later of two requirements with one hash have the place.
func (ls *lists) findOrAdd(hash uint64, service string, r *freeslot.Requirement) *list {
	if l := ls.find(hash, service, r); l != nil {
		return l
	}
	if len(ls.byHash) >= listLimit || ls.candidates >= candidateLimit {
		ls.drop()
	}
	l := &list{service: service, requirement: copied(r)}
	ls.byHash[hash] = l
	return l
}

func (ls *lists) set(l *list, class *selection.Class, profiles uint64) {
	if l.class != nil {
		ls.candidates -= l.class.Fits()
	}
	ls.candidates += class.Fits()
	l.class, l.profiles = class, profiles
}

func (ls *lists) drop() {
	clear(ls.byHash)
	ls.candidates = 0
}

// copied shares nothing with the caller's requirement.
func copied(r *freeslot.Requirement) freeslot.Requirement {
	out := *r
	out.Services = slices.Clone(r.Services)
	out.Labels = maps.Clone(r.Labels)
	out.LabelRules = slices.Clone(r.LabelRules)
	for i := range out.LabelRules {
		out.LabelRules[i].Values = slices.Clone(out.LabelRules[i].Values)
	}
	return out
}

package cache

import (
	"maps"
	"slices"
	"sync/atomic"

	"github.com/freeslot/freeslot"
)

// Requirements as stated are remembered with their class: lookupSets times
// lookupWays of them, each with up to lookupVariants sets of labels. A set that is
// full forgets one. Four ways keep a thousand spellings in use at a time from
// displacing each other for ever.
const (
	lookupSets     = 2048
	lookupWays     = 4
	lookupVariants = 8
	// lookupParts bounds what is remembered of one: clients state what they like.
	lookupParts = 32
)

type lookupSet [lookupWays]atomic.Pointer[lookup]

// lookup is what is remembered of requirements that differ by their labels at most.
// It is immutable.
type lookup struct {
	hash     uint64
	bare     *class // of the one without labels, nil if it is not remembered
	service  string
	stated   freeslot.Stated
	names    []string // of the labels, the same ones in all variants
	variants []variant
}

// variant is the class of one set of labels. The values are in the order of names.
type variant struct {
	class *class
	first string
	rest  []string
}

func (s *lookupSet) find(hash uint64, service string, r *freeslot.Requirement) *class {
	for i := range s {
		if l := s[i].Load(); l != nil && l.hash == hash && l.of(service, r) {
			if cl := l.labelled(r.Labels); cl != nil {
				return cl
			}
		}
	}
	return nil
}

// put takes l over beside what is there of the same words, or in a free place. It
// returns false when there is neither.
func (s *lookupSet) put(l *lookup, service string, r *freeslot.Requirement) bool {
	for i := range s {
		known := s[i].Load()
		if known != nil && known.hash == l.hash && known.of(service, r) {
			if known.labelled(r.Labels) != nil {
				return true // somebody else was first
			}
			if both := known.with(l); both != nil {
				s[i].CompareAndSwap(known, both) // or somebody else was first: another time
				return true
			}
		}
	}
	for i := range s {
		if s[i].CompareAndSwap(nil, l) {
			return true
		}
	}
	return false
}

// newLookup keeps nothing of r that may change.
func newLookup(hash uint64, service string, r *freeslot.Requirement, cl *class) *lookup {
	l := &lookup{hash: hash, service: service, stated: freeslot.NewStated(r)}
	if len(r.Labels) == 0 {
		l.bare = cl
		return l
	}
	l.names = slices.Sorted(maps.Keys(r.Labels))
	v := variant{class: cl, first: r.Labels[l.names[0]]}
	for _, name := range l.names[1:] {
		v.rest = append(v.rest, r.Labels[name])
	}
	l.variants = []variant{v}
	return l
}

// of reports whether all but the labels is that of "service with requirement r".
func (l *lookup) of(service string, r *freeslot.Requirement) bool {
	return l.service == service && l.stated.Same(r)
}

// labelled returns the class of these labels, nil if it is not known here. Names are
// looked up: to go through a map takes longer than all the rest of a choice.
func (l *lookup) labelled(labels map[string]string) *class {
	if len(labels) == 0 {
		return l.bare
	}
	if len(labels) != len(l.names) {
		return nil
	}
	first, ok := labels[l.names[0]]
	for i := range l.variants {
		if v := &l.variants[i]; ok && v.first == first && (len(v.rest) == 0 || l.restIs(v.rest, labels)) {
			return v.class
		}
	}
	return nil
}

func (l *lookup) restIs(values []string, labels map[string]string) bool {
	for i, name := range l.names[1:] {
		if value, ok := labels[name]; !ok || value != values[i] {
			return false
		}
	}
	return true
}

// with is l and what other, of the same words, adds to it; nil if they do not go
// together or are too many.
func (l *lookup) with(other *lookup) *lookup {
	both := *l
	switch {
	case other.bare != nil:
		both.bare = other.bare
	case len(l.names) == 0:
		both.names, both.variants = other.names, other.variants
	case len(l.variants) < lookupVariants && slices.Equal(l.names, other.names):
		both.variants = slices.Concat(l.variants, other.variants)
	default:
		return nil
	}
	return &both
}

// isDropped reports whether one of the classes was dropped.
func (l *lookup) isDropped() bool {
	return l.bare != nil && l.bare.isDropped() ||
		slices.ContainsFunc(l.variants, func(v variant) bool { return v.class.isDropped() })
}

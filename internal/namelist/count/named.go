package count

import "sync"

const (
	// maxNames bounds the names of a Named. Further ones count under Other.
	maxNames = 256
	// Other counts for names beyond the bound.
	Other = "other"
)

// Named counts by names that change over time, such as the rules of a chain. The zero value is
// ready to use. It is safe for concurrent use.
type Named struct {
	mu   sync.Mutex
	past map[string]uint64 // guarded by mu; of sets that no one uses any more
	sets []namedSet        // guarded by mu; the newest is the last
}

type namedSet struct {
	names []string
	set   *Set
}

// keptSets is how many sets still count: the newest, and the one before, which callers may be using
// while they change to the newest.
const keptSets = 2

// Set returns counters of these names, in their order. They begin at 0; Totals adds up all sets.
// Sets before the last two must be out of use: their later additions are lost.
func (n *Named) Set(names []string) *Set {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.sets) == keptSets {
		if n.past == nil {
			n.past = make(map[string]uint64)
		}
		n.sets[0].addTo(n.past)
		n.sets = n.sets[1:]
	}
	s := NewSet(len(names))
	n.sets = append(n.sets, namedSet{names, s})
	return s
}

// Totals returns what was counted for each name. Names that never counted are absent.
func (n *Named) Totals() map[string]uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make(map[string]uint64, len(n.past))
	for name, count := range n.past {
		all[name] = count
	}
	for _, s := range n.sets {
		s.addTo(all)
	}
	return all
}

func (s *namedSet) addTo(all map[string]uint64) {
	for i, name := range s.names {
		count := s.set.Get(i)
		if count == 0 {
			continue
		}
		if _, known := all[name]; !known && len(all) >= maxNames {
			name = Other
		}
		all[name] += count
	}
}

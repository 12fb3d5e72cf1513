package pick

import (
	"math"

	"github.com/freeslot/freeslot/internal/ring"
)

// draws is how often a policy chooses before it takes the next best instance, since a chosen
// instance may be set aside. At most half of them are, so with equal weights all draws fail once in
// 256 times.
const draws = 8

// hashTries is the number of instances that a key is offered to before the next one with room takes
// it.
const hashTries = 16

// choose returns a member of the group that is not set aside and is not the one tried before; nil
// if there is none.
func (p *Picker) choose(g *group, key string, not *state) *member {
	if len(g.members) == 0 {
		return nil
	}
	if p.cfg.Policy == ConsistentHash {
		return p.byKey(g, key, not)
	}
	var m *member
	for try := 0; m == nil && try < draws; try++ {
		m = p.draw(g, not)
	}
	if m == nil {
		m = p.after(g, aliases(nil).draw(len(g.members), p.cfg.Rand()), func(m *member) bool { return p.takes(m, not) })
	}
	if m != nil && p.cfg.Policy == LeastLoaded {
		m.state.underWay.Add(1)
	}
	return m
}

func (p *Picker) takes(m *member, not *state) bool { return m.state != not && !p.isAside(m.state) }

// draw chooses once, and returns nil if the chosen member cannot be used.
func (p *Picker) draw(g *group, not *state) *member {
	var m *member
	switch n := len(g.members); p.cfg.Policy {
	case RoundRobin:
		m = &g.members[p.next.Add(1)%uint64(n)]
	case LeastLoaded:
		m = &g.members[g.table.draw(n, p.cfg.Rand())]
		other := &g.members[g.table.draw(n, p.cfg.Rand())]
		if !p.takes(m, not) || p.takes(other, not) && other.load() < m.load() {
			m = other
		}
	default: // Random has no table
		m = &g.members[g.table.draw(n, p.cfg.Rand())]
	}
	if !p.takes(m, not) {
		return nil
	}
	return m
}

// load returns the calls under way, including the one to come, relative to the weight.
func (m *member) load() float32 { return float32(m.state.underWay.Load()+1) / m.weight }

// after returns the first good member from an index on, going round.
func (p *Picker) after(g *group, from int, good func(m *member) bool) *member {
	for i := range g.members {
		if m := &g.members[(from+i)%len(g.members)]; good(m) {
			return m
		}
	}
	return nil
}

// byKey chooses by bounded-load consistent hashing (Mirrokni, Thorup and Zadimoghaddam 2016). An
// instance takes a call if it then has at most the load factor times its share of all calls under
// way, rounded up. There is always one with room: the bounds add up to more than the calls.
func (p *Picker) byKey(g *group, key string, not *state) *member {
	perWeight := p.cfg.LoadFactor * float64(p.underWay.Load()) / g.weight
	take := func(m *member) bool {
		if !p.takes(m, not) {
			return false
		}
		// Count first, then compare: of two calls that race for the last room, one finds it taken.
		if float64(m.state.underWay.Add(1)) <= math.Ceil(perWeight*float64(m.weight)) {
			return true
		}
		m.state.underWay.Add(-1)
		return false
	}
	hash, first := ring.Hash(key), 0
	for try := range uint64(hashTries) {
		at := g.ring.Find(hash, try)
		if try == 0 {
			first = at
		}
		if m := &g.members[at]; take(m) {
			return m
		}
	}
	if m := p.after(g, first, take); m != nil {
		return m
	}
	// The members with room are set aside: the others share their calls.
	m := p.after(g, first, func(m *member) bool { return p.takes(m, not) })
	if m != nil {
		m.state.underWay.Add(1)
	}
	return m
}

package pick

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/ring"
)

// prepared is a list in the form that picks need. It is immutable except for the states.
type prepared struct {
	list *registry.List // nil if there is none yet
	// taken is the part of it that the filter selects.
	taken *registry.List
	// all holds the healthy instances, local those in the caller's own zone.
	all, local group
}

// member is an instance with the values that picks need.
type member struct {
	instance *registry.Instance
	state    *state
	weight   float32
	local    bool
}

// state is what a Picker knows of one life of an instance, across lists.
type state struct {
	id string
	// underWay counts calls, for policies that consider load.
	underWay atomic.Int64
	// until is when an instance that was set aside is back, by Picker.now; 0 if it was not set
	// aside. Picker.mu is held to write until and refusals.
	until atomic.Int64
	// refusals counts refusals in a row.
	refusals atomic.Int64
}

// group is a set of instances to choose from.
type group struct {
	members []member // by id
	weight  float64  // of all
	table   aliases
	ring    *ring.Ring // for ConsistentHash
}

// prepare prepares a list. It takes over what did not change from the last prepared one.
func (p *Picker) prepare(list *registry.List, last *prepared) *prepared {
	next := &prepared{list: list}
	if list == nil {
		return next
	}
	if last == nil {
		last = &prepared{}
	}
	next.taken = list
	if p.cfg.Filter != nil {
		next.taken = list.Match(p.cfg.Filter)
	}
	healthy := next.taken.Healthy().Instances
	members, left := make([]member, 0, len(healthy)), walk{last.all.members}
	for _, instance := range healthy {
		if m := left.same(instance); m != nil {
			members = append(members, *m)
			continue
		}
		m := p.newMember(instance)
		if m.state = left.find(instance); m.state == nil {
			m.state = &state{id: instance.ID}
		}
		members = append(members, m)
	}
	next.all.members = members
	for _, m := range next.all.members {
		if m.local {
			next.local.members = append(next.local.members, m)
		}
	}
	p.complete(&next.all, &last.all)
	p.complete(&next.local, &last.local)
	return next
}

func (p *Picker) newMember(instance *registry.Instance) member {
	m := member{instance: instance, weight: float32(instance.Weight)}
	if !(m.weight > 0) {
		m.weight = 1
	}
	m.local = p.cfg.Zone != "" && instance.Metadata["zone"] == p.cfg.Zone
	return m
}

// walk goes through members in step with a list, since both are sorted by id.
type walk struct{ left []member }

// same returns the member for exactly this instance, if it comes next.
func (w *walk) same(instance *registry.Instance) *member {
	if len(w.left) == 0 || w.left[0].instance != instance {
		return nil
	}
	m := &w.left[0]
	w.left = w.left[1:]
	return m
}

// find returns the state of this life of an instance, or nil.
func (w *walk) find(instance *registry.Instance) *state {
	for len(w.left) > 0 && w.left[0].instance.ID < instance.ID {
		w.left = w.left[1:]
	}
	if len(w.left) == 0 || w.left[0].instance.ID != instance.ID {
		return nil
	}
	was, s := w.left[0].instance, w.left[0].state
	w.left = w.left[1:]
	if was.Epoch != instance.Epoch || was.Host != instance.Host || was.Port != instance.Port {
		return nil
	}
	return s
}

// has reports whether the list has a usable instance with this state.
func (l *prepared) has(s *state) bool {
	at, ok := slices.BinarySearchFunc(
		l.all.members, s.id, func(m member, id string) int { return strings.Compare(m.instance.ID, id) },
	)
	return ok && l.all.members[at].state == s
}

// complete adds what the policy needs. It reuses the last group's if the members are the same.
func (p *Picker) complete(g, last *group) {
	if len(g.members) == 0 || p.cfg.Policy == Random || p.cfg.Policy == RoundRobin {
		return
	}
	if slices.EqualFunc(
		g.members, last.members, func(a, b member) bool { return a.state == b.state && a.weight == b.weight },
	) {
		g.weight, g.table, g.ring = last.weight, last.table, last.ring
		return
	}
	equal := true
	for i := range g.members {
		g.weight += float64(g.members[i].weight)
		equal = equal && g.members[i].weight == g.members[0].weight
	}
	if p.cfg.Policy != ConsistentHash {
		if !equal {
			g.table = newAliases(g.members, g.weight)
		}
		return
	}
	g.ring = ring.New(g.members, func(m member) string { return m.instance.ID }, func(m member) int {
		if equal {
			return 1
		}
		return max(1, int(math.Round(float64(m.weight)*64)))
	})
}

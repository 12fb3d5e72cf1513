package main

import (
	"slices"
	"sync"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/bench/sim"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/selection"
)

// timedNodes is a cache that notes when choices are made. The dispatcher asks for the class right before each.
type timedNodes struct {
	*cache.Cache
	mu      sync.Mutex // guards choices
	choices []int64    // wall clock, ns
}

// Class implements dispatch.Nodes.
func (n *timedNodes) Class(service string, r *freeslot.Requirement) *selection.Class {
	at := time.Now().UnixNano()
	n.mu.Lock()
	n.choices = append(n.choices, at)
	n.mu.Unlock()
	return n.Cache.Class(service, r)
}

func (n *timedNodes) take() []int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	taken := n.choices
	n.choices = nil
	return taken
}

// Ages of changes, from the youngest that is told apart on, each by a quarter above the one before.
const (
	youngest  = 10 * time.Microsecond
	ageStep   = 1.25
	ageLimit  = 500 * time.Millisecond
	ageGroups = 49
)

// unseen counts, for changes of one age, the choices that were made then, and those of them that did not
// know of the change yet. What a conflict depends on is that share: a replica that gets no time of the
// processor learns late, but makes no choices meanwhile either.
type unseen struct {
	choices, blind [ageGroups]float64
}

// add looks at the choices of one replica after each change that it came to know of.
func (u *unseen) add(seen []sighted, choices []int64) {
	slices.Sort(choices)
	for _, s := range seen {
		first, _ := slices.BinarySearch(choices, s.change.atNS)
		for _, at := range choices[first:] {
			age := at - s.change.atNS
			if age >= int64(ageLimit) {
				break
			}
			i := ageGroup(age)
			u.choices[i]++
			if at < s.atNS {
				u.blind[i]++
			}
		}
	}
}

// ageGroup is 0 for what is younger than the youngest, and the last for what is older than all others.
func ageGroup(age int64) int {
	i := 0
	for top := float64(youngest); i < ageGroups-1 && float64(age) >= top; top *= ageStep {
		i++
	}
	return i
}

// delays are the delays of events as choices meet them: the share at a delay is that of the choices which
// knew of a change of this age. nil when there were no choices.
func (u *unseen) delays() sim.Quantiles {
	shares := falling(u.blind[:], u.choices[:])
	if shares == nil {
		return nil
	}
	out := sim.Quantiles{{At: 0, US: 0}}
	top := float64(youngest)
	for _, blind := range shares {
		// A group's choices are spread over it: its share is that of its middle.
		us := top / (1 + ageStep) * 2 / float64(time.Microsecond)
		if 1-blind > out[len(out)-1].At {
			out = append(out, sim.Quantile{At: 1 - blind, US: us})
		}
		top *= ageStep
	}
	if last := out[len(out)-1]; last.At < 1 {
		out = append(out, sim.Quantile{At: 1, US: last.US * ageStep})
	}
	return out
}

// falling is the sequence of shares part/whole that never rises and is the nearest to the measured ones by
// least squares, by pooling neighbours that violate the order (Ayer et al. 1955). Groups without any have
// their neighbours' share. nil without any at all.
func falling(part, whole []float64) []float64 {
	type pool struct {
		part, whole float64
		groups      int
	}
	var pools []pool
	for i := range whole {
		pools = append(pools, pool{part[i], whole[i], 1})
		for n := len(pools); n > 1; n = len(pools) {
			a, b := &pools[n-2], pools[n-1]
			if a.whole > 0 && b.whole > 0 && a.part*b.whole >= b.part*a.whole {
				break
			}
			a.part, a.whole, a.groups = a.part+b.part, a.whole+b.whole, a.groups+b.groups
			pools = pools[:n-1]
		}
	}
	if pools[0].whole == 0 {
		return nil
	}
	var out []float64
	for _, p := range pools {
		for range p.groups {
			out = append(out, p.part/p.whole)
		}
	}
	return out
}

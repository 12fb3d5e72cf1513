package demand

import (
	"math"
	"time"
)

// downAfter is how long a pool must need fewer nodes before fewer are proposed.
const downAfter = 5 * time.Minute

// load is what a proposal is made from. Times are in seconds.
type load struct {
	used, wanted float64 // slots
	arrivals     float64 // slots of arriving jobs, per second
	run          float64 // mean run time; 0 if it is not known
	target       float64 // how long jobs may wait
	there        int     // nodes
}

// slots returns the slots that let the queue run empty within the target, while arrivals go on. By
// the fluid approximation, n slots begin n-used at once and n/run per second afterwards, which must
// be wanted+arrivals*target within the target. Solved for n this gives the quotient below.
//
// In a steady state it is arrivals*run (Little's law). The longer jobs run, the nearer it comes to
// a slot for each of them, as it is while the run time is not known. It is never below the slots in
// use.
func (l load) slots() float64 {
	all := l.used + l.wanted + l.arrivals*l.target
	if l.run > 0 {
		all *= l.run / (l.run + l.target)
	}
	return max(all, l.used)
}

// nodes returns the nodes that have that many slots, each of them this many. While no run time is
// known, it is at most twice the nodes that are there: jobs may be short, and the first node tells.
func (l load) nodes(each float64) int {
	n := int(math.Ceil(l.slots()/each - 1e-9))
	if l.run == 0 {
		n = min(n, max(2*l.there, 1))
	}
	if l.wanted > 0 {
		n = max(n, 1)
	}
	return n
}

// proposal is what a pool needed within the last downAfter: the largest need since each moment, so
// that need falls and time rises from one entry to the next.
type proposal struct {
	needs []need
	slots float64 // that one more node brings; 0 if that was never known
}

type need struct {
	at    time.Time
	nodes int
}

// newProposal begins with the nodes that are there: they may have been needed a moment ago.
func newProposal(now time.Time, present int) *proposal {
	return &proposal{needs: []need{{now, present}}}
}

// hold keeps the last proposal as of now, while the need is not known: nodes are not removed for
// having been needed before an outage.
func (p *proposal) hold(now time.Time) { p.needs = []need{{now, p.needs[0].nodes}} }

// add notes what the pool needs now, and returns the most that it needed within downAfter: more
// nodes are proposed at once, fewer only after that time.
func (p *proposal) add(now time.Time, nodes int) int {
	i := len(p.needs)
	for i > 0 && p.needs[i-1].nodes <= nodes {
		i--
	}
	p.needs = append(p.needs[:i], need{now, nodes})
	for now.Sub(p.needs[0].at) > downAfter {
		p.needs = p.needs[1:]
	}
	return p.needs[0].nodes
}

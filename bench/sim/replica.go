package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// service is the one that all nodes have and all jobs want.
const service = "work"

// How many submit calls a cell of the product keeps under way: callsOfFew while no more than
// fewJobs are in them or wait for one.
const (
	callsUnderWay = 2
	callsOfFew    = 8
	fewJobs       = 3 * callsOfFew
)

// replica is one scheduler process: its view, and the calls of its submit script.
type replica struct {
	views []*selection.Node // by node
	class *selection.Class
	rnd   *selection.Source

	// events brings the shared log; next is the first entry that was not yet taken in, nextAt its
	// arrival, or -1 while it is not yet drawn.
	events  channel
	next    int
	nextAt  int64
	replies channel
	// replied are completions of this replica's jobs on their way, in the order of arrival.
	replied []reply

	trips   *rand.Rand
	queue   []*placement // of the next call
	calls   int          // under way
	carried int          // jobs in these
	open    groups
}

// reply carries to the submitting replica how many slots were in use after a completion.
type reply struct {
	at         int64
	node, used int32
}

// placement is one job on its way to a node, as in internal/dispatch.
type placement struct {
	job      job
	replica  int32
	measured bool

	candidates []*selection.Node
	room       [cell.MaxCandidates]*selection.Node
	nodes      [cell.MaxCandidates]int32 // the candidates' indexes
	taken      bool
	refused    []string
	rounds     int
	probed     bool // it has offered itself to nodes that seem full
	grouped    bool // it was placed in a group

	// What the script answers.
	assigned int // index of the candidate; -1 is none
	used     [cell.MaxCandidates]int32
}

// profiles are compiled once and shared by all views.
func profiles(cfg *config) []*selection.Profile {
	all := make([]*selection.Profile, len(cfg.slots))
	for i, slots := range cfg.slots {
		all[i] = selection.Compile(&freeslot.Node{ID: fmt.Sprintf("node-%06d", i), MaxConcurrency: slots, Services: []freeslot.Service{{Name: service}}})
	}
	return all
}

func newReplica(cfg *config, index int, all []*selection.Profile) *replica {
	salt := uint64(index) << 8
	pace := newPace(source(cfg.seed, salt+3).Uint64(), cfg.eventDelay, cfg.replyDelay)
	r := &replica{
		views: make([]*selection.Node, len(all)), rnd: selection.NewSource(source(cfg.seed, salt+2).Uint64()),
		events: channel{delay: cfg.eventDelay, pace: pace}, replies: channel{delay: cfg.replyDelay, pace: pace},
		trips: source(cfg.seed, salt+5), nextAt: -1,
	}
	for i, p := range all {
		r.views[i] = selection.NewNode(p, 0)
		r.views[i].Seen(0)
	}
	names := make([]string, cfg.replicas)
	for i := range names {
		names[i] = fmt.Sprintf("replica-%d", i)
	}
	share := selection.NewShare(names[index], names)
	r.class = selection.NewIdentity(service, new(freeslot.Requirement)).NewClass(share, r.views, &selection.Config{Enabled: true})
	return r
}

func (r *replica) callsAllowed() int {
	if len(r.queue)+r.carried > fewJobs {
		return callsUnderWay
	}
	return callsOfFew
}

// catchUp brings a replica's view up to now: the events and replies that have arrived, in that
// order.
func (w *world) catchUp(r *replica) {
	for {
		at, ok := w.nextEvent(r)
		due := ok && at <= w.now
		answered := len(r.replied) > 0 && r.replied[0].at <= w.now
		switch {
		case due && (!answered || at <= r.replied[0].at):
			e := w.truth.event(r.next)
			r.views[e.node].SetUsed(int(e.used))
			r.next++
			r.nextAt = -1
		case answered:
			first := r.replied[0]
			r.replied = r.replied[1:]
			r.views[first.node].SetUsed(int(first.used))
		default:
			return
		}
	}
}

// nextEvent is when the next event of the log arrives.
func (w *world) nextEvent(r *replica) (at int64, ok bool) {
	if r.next == w.truth.end() {
		return 0, false
	}
	if r.nextAt < 0 {
		r.nextAt = r.events.arrival(w.truth.event(r.next).at)
	}
	return r.nextAt, true
}

// query is internal/dispatch's. Nodes never fall silent here.
func (w *world) query(p *placement) selection.Query {
	return selection.Query{Want: w.cfg.candidates, Now: w.now, SilenceLimit: math.MaxInt64, Exclude: p.refused}
}

// choose picks candidates and takes the first one's slot in the view, as internal/dispatch does. It
// returns false when there are none.
func (w *world) choose(p *placement) bool {
	if p.grouped {
		p.grouped = false
		return true
	}
	if p.rounds >= w.cfg.rounds {
		return false
	}
	r := w.replicas[p.replica]
	w.catchUp(r)
	q := w.query(p)
	p.candidates = r.class.Choose(p.room[:0], &q, r.rnd)
	if len(p.candidates) == 0 && !p.probed {
		p.probed = true
		q.IgnoreFull, q.Want = true, cell.MaxCandidates
		p.candidates = r.class.Choose(p.room[:0], &q, r.rnd)
	}
	if len(p.candidates) == 0 {
		return false
	}
	p.taken = p.candidates[0].TryTake(1)
	w.chosen(p)
	return true
}

func (w *world) chosen(p *placement) {
	p.rounds++
	for i, n := range p.candidates {
		p.nodes[i] = w.index[n.ID()]
	}
}

// chooseAlike picks candidates for new jobs in groups, as internal/dispatch does: for those that
// come together, and for one that comes alone while others are under way.
func (w *world) chooseAlike(jobs []*placement) {
	r := w.replicas[jobs[0].replica]
	w.catchUp(r)
	if len(jobs) > 1 {
		var g groups
		w.chooseGroups(&g, r, len(jobs))
		for _, p := range jobs {
			w.place(p, &g)
		}
		return
	}
	underWay := len(r.queue) + r.carried + 1
	if underWay == 1 {
		return
	}
	if !r.open.left() || w.now > r.open.until {
		w.chooseGroups(&r.open, r, underWay)
		// Nodes that are more than half full are left to choices of one job.
		for i := range r.open.list {
			g := &r.open.list[i]
			if used, pending := g.Node.Load(); 2*(used+pending) > g.Node.Max() {
				g.Jobs = 0
			}
		}
	}
	w.place(jobs[0], &r.open)
}

// openLife is how long groups are open for jobs that come alone.
const openLife = int64(2 * time.Millisecond)

// groups are filled one after the other.
type groups struct {
	list  []selection.Group
	at    int
	until int64
}

func (g *groups) left() bool { return g.at < len(g.list) && g.list[g.at].Jobs > 0 }

func (w *world) chooseGroups(g *groups, r *replica, jobs int) {
	q := w.query(new(placement))
	*g = groups{list: r.class.Batch(g.list[:0], jobs, &q, r.rnd), until: w.now + openLife}
}

// place gives a job the next place of the groups, if there is one.
func (w *world) place(p *placement, g *groups) {
	for ; g.left(); g.at++ {
		group := &g.list[g.at]
		if p.taken = group.Node.TryTake(1); !p.taken {
			continue
		}
		p.candidates, p.grouped = selection.AppendCandidates(p.room[:0], g.list, g.at, w.cfg.candidates), true
		w.chosen(p)
		if group.Jobs--; group.Jobs == 0 {
			g.at++
		}
		return
	}
}

// accept takes the script's answer over into the view, as internal/dispatch does.
func (p *placement) accept() {
	refusals := p.candidates
	if p.assigned >= 0 {
		refusals = p.candidates[:p.assigned]
		n, used := p.candidates[p.assigned], int(p.used[p.assigned])
		if p.assigned == 0 && p.taken {
			n.Confirm(1, used)
			p.taken = false
		} else {
			n.SetUsed(used)
		}
		n.Accepted()
	}
	if p.taken {
		p.candidates[0].Release(1)
		p.taken = false
	}
	for i, n := range refusals {
		n.SetUsed(int(p.used[i]))
		p.refused = append(p.refused, n.ID())
	}
}

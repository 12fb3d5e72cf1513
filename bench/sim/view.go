package sim

import (
	"fmt"
	"math"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// service is the one that all nodes have and all jobs want.
const service = "work"

// replica is one scheduler process: its view, and the calls of its submit script.
type replica struct {
	views   []*selection.Node // by node
	classes []*selection.Class
	rnd     *selection.Source

	// events brings the shared log; next is the first entry that was not yet taken in.
	events  channel
	next    int
	nextAt  int64 // its arrival; -1 while not yet drawn
	replies interface{ arrival(at int64) int64 }
	// replied are completions of this replica's jobs on their way, in the order of arrival.
	replied []reply

	trip   trips
	queue  []*placing // of the next call
	flying int        // calls under way
	// carried is how many jobs these carry.
	carried int

	// What follows is for events that can be lost.

	armed bool // an entry of the agenda will deliver the next event
	gap   int  // the first lost event since the last comparison; -1 is none
	// asking is true during a comparison: nothing is applied meanwhile.
	asking  bool
	calmAt  int64 // when the next comparison may begin
	fetched []fresh
}

// reply tells the submitting replica how many slots were in use after a completion.
type reply struct {
	at         int64
	node, used int32
}

// fresh is a node's figure as a comparison brought it.
type fresh struct{ node, used int32 }

// profiles are compiled once and shared by all views.
func profiles(cfg *Config) []*selection.Profile {
	all := make([]*selection.Profile, len(cfg.Slots))
	for i, slots := range cfg.Slots {
		n := &freeslot.Node{
			ID: fmt.Sprintf("node-%06d", i), MaxConcurrency: slots, Services: []freeslot.Service{{Name: service}},
		}
		if cfg.Pools > 0 {
			n.Pools = []string{poolName(i % cfg.Pools)}
		}
		all[i] = selection.Compile(n)
	}
	return all
}

func poolName(i int) string { return fmt.Sprintf("pool-%d", i) }

func newReplica(cfg *Config, index int, all []*selection.Profile) *replica {
	salt := uint64(index) << 8
	pace := newPace(source(cfg.Seed, salt+3).Uint64(), cfg.EventDelay, cfg.ReplyDelay)
	r := &replica{
		views: make([]*selection.Node, len(all)), rnd: selection.NewSource(source(cfg.Seed, salt+2).Uint64()),
		events: channel{delay: cfg.EventDelay, rnd: source(cfg.Seed, salt+3), pace: pace},
		trip:   trips{cfg.RoundTrip, source(cfg.Seed, salt+5)},
		nextAt: -1, gap: -1,
	}
	if cfg.ReplyDelay == nil {
		r.replies = &reader{trip: trips{cfg.RoundTrip, source(cfg.Seed, salt+4)}, readAt: -1}
	} else {
		r.replies = &channel{delay: cfg.ReplyDelay, rnd: source(cfg.Seed, salt+4), pace: pace}
	}
	for i, p := range all {
		r.views[i] = selection.NewNode(p, 0)
		r.views[i].Seen(0)
	}
	how, share := &selection.Config{Enabled: true, Policy: cfg.Policy}, shareOf(cfg, index)
	if cfg.Pools == 0 {
		r.classes = []*selection.Class{selection.NewIdentity(service, new(freeslot.Requirement)).NewClass(share, r.views, how)}
		return r
	}
	members := make([][]*selection.Node, cfg.Pools)
	for i, n := range r.views {
		members[i%cfg.Pools] = append(members[i%cfg.Pools], n)
	}
	for i := range members { // the others would only be counted as not fitting
		r.classes = append(r.classes, selection.NewIdentity(service, &freeslot.Requirement{Pool: poolName(i)}).NewClass(share, members[i], how))
	}
	return r
}

func shareOf(cfg *Config, index int) *selection.Share {
	if cfg.NoShares {
		return nil
	}
	names := make([]string, cfg.Replicas)
	for i := range names {
		names[i] = fmt.Sprintf("replica-%d", i)
	}
	return selection.NewShare(names[index], names)
}

// placing is one job on its way to a node, as in internal/dispatch.
type placing struct {
	job      job
	replica  int32
	measured bool

	candidates []*selection.Node
	room       [cell.MaxCandidates]*selection.Node
	nodes      [cell.MaxCandidates]int32 // the candidates' indexes
	taken      bool
	refused    []string
	rounds     int
	probes     int
	probing    bool // this round is to nodes that seem full

	// What the script answers.
	assigned int // index of the candidate; -1 is none
	used     [cell.MaxCandidates]int32
}

// query is internal/dispatch's. Nodes never fall silent here.
func (w *world) query(p *placing) selection.Query {
	return selection.Query{
		Want: w.cfg.Candidates, Samples: w.cfg.Samples, Now: w.now, SilenceLimit: math.MaxInt64,
		AffinityKey: p.job.key, Exclude: p.refused,
	}
}

// choose picks candidates and takes the first one's slot in the view, as internal/dispatch does. It returns
// false when there are none.
func (w *world) choose(p *placing) bool {
	if p.rounds >= w.cfg.Rounds {
		return false
	}
	r := w.replicas[p.replica]
	w.catchUp(r)
	q := w.query(p)
	class := r.classes[p.job.pool]
	p.candidates = class.Choose(p.room[:0], &q, r.rnd)
	p.probing = len(p.candidates) == 0 && p.probes == 0
	if p.probing {
		p.probes++
		q.IgnoreFull, q.Want = true, cell.MaxCandidates
		p.candidates = class.Choose(p.room[:0], &q, r.rnd)
	}
	if len(p.candidates) == 0 {
		return false
	}
	p.rounds++
	for i, n := range p.candidates {
		p.nodes[i] = w.index[n.ID()]
	}
	p.taken = p.candidates[0].TryTake(1)
	return true
}

// settle takes the script's answer over into the view, as internal/dispatch does.
func (p *placing) settle() {
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

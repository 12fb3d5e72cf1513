package main

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// twin is the slow and obvious simulation: everything that is to come is a function in one list,
// which is searched for the earliest; every message to every replica is one of them. It knows only
// delays that are always the same.
type twin struct {
	cfg    config
	now    int64
	future []coming
	rnd    interface{ Int64N(int64) int64 }
	pick   func(int32) int32
	jobs   *jobs
	next   []job
	came   int
	open   int

	used   []int32
	all    []*twinReplica
	counts counts
}

// coming is what happens at a moment. Messages that correct views come before everything else of
// that moment.
type coming struct {
	at      int64
	message bool
	do      func()
}

type twinReplica struct {
	views []*selection.Node
	class *selection.Class
	rnd   *selection.Source
	queue []*twinJob
	calls int
	sent  int // jobs under way
	// places are the nodes that jobs which come alone get until a moment, groups what they are of.
	places []int
	groups []selection.Group
	until  int64
}

type twinJob struct {
	job
	replica *twinReplica
	counts  bool
	nodes   []*selection.Node
	taken   bool
	refused []string
	rounds  int
	probed  bool
	grouped bool
}

func (w *twin) after(delay int64, message bool, do func()) {
	w.future = append(w.future, coming{at: w.now + delay, message: message, do: do})
}

func (w *twin) run() {
	for len(w.future) > 0 {
		first := 0
		for i, c := range w.future {
			f := w.future[first]
			if c.at < f.at || c.at == f.at && c.message && !f.message {
				first = i
			}
		}
		c := w.future[first]
		w.future = slices.Delete(w.future, first, first+1)
		w.now = c.at
		c.do()
	}
}

func (w *twin) publish(node int32) {
	used := int(w.used[node])
	for _, r := range w.all {
		w.after(w.cfg.eventDelay.value(0.5), true, func() { r.views[node].SetUsed(used) })
	}
}

func (w *twin) beat(node int32) {
	if w.came == w.cfg.warmUp+w.cfg.jobs && w.open == 0 {
		return
	}
	w.counts.heartbeats++
	w.publish(node)
	tenth := int64(w.cfg.heartbeat) / 10
	w.after(int64(w.cfg.heartbeat)-tenth+w.rnd.Int64N(2*tenth+1), false, func() { w.beat(node) })
}

func (w *twin) arrive(r *twinReplica) {
	var all []*twinJob
	for _, j := range w.next {
		all = append(all, &twinJob{job: j, replica: r, counts: w.came >= w.cfg.warmUp})
		if w.came >= w.cfg.warmUp {
			w.counts.arrived++
		}
		w.came++
		w.open++
	}
	if w.came < w.cfg.warmUp+w.cfg.jobs {
		w.plan()
	}
	if w.cfg.groups && len(all) > 1 {
		q := selection.Query{Want: w.cfg.candidates, SilenceLimit: math.MaxInt64, Now: w.now}
		groups := r.class.Batch(nil, len(all), &q, r.rnd)
		next := 0
		for i, g := range groups {
			for range g.Jobs {
				j := all[next]
				next++
				if !g.Node.TryTake(1) {
					panic("a group is larger than its node")
				}
				j.join(groups, i, w.cfg.candidates)
			}
		}
	}
	if others := len(r.queue) + r.sent; w.cfg.groups && len(all) == 1 && others > 0 {
		if len(r.places) == 0 || w.now > r.until {
			q := selection.Query{Want: w.cfg.candidates, SilenceLimit: math.MaxInt64, Now: w.now}
			r.groups, r.places, r.until = r.class.Batch(nil, others+1, &q, r.rnd), nil, w.now+2_000_000
			for i, g := range r.groups {
				if used, pending := g.Node.Load(); 2*(used+pending) > g.Node.Max() {
					break
				}
				r.places = append(r.places, slices.Repeat([]int{i}, g.Jobs)...)
			}
		}
		for len(r.places) > 0 && !all[0].grouped {
			i := r.places[0]
			if r.groups[i].Node.TryTake(1) {
				r.places = r.places[1:]
				all[0].join(r.groups, i, w.cfg.candidates)
			} else {
				r.places = slices.DeleteFunc(r.places, func(place int) bool { return place == i })
			}
		}
	}
	for _, j := range all {
		w.offer(j)
	}
	for range all {
		w.send(r)
	}
}

func (j *twinJob) join(groups []selection.Group, at, candidates int) {
	j.grouped, j.taken, j.rounds = true, true, 1
	for k := range min(candidates, len(groups)) {
		j.nodes = append(j.nodes, groups[(at+k)%len(groups)].Node)
	}
}

func (w *twin) plan() {
	w.next = nil
	for len(w.next) < w.cfg.together && w.came+len(w.next) < w.cfg.warmUp+w.cfg.jobs {
		w.next = append(w.next, w.jobs.following())
	}
	r := w.all[w.pick(int32(len(w.all)))]
	w.after(max(w.next[len(w.next)-1].at-w.now, 0), false, func() { w.arrive(r) })
}

func (w *twin) offer(j *twinJob) {
	if !w.choose(j) {
		w.open--
		if j.counts {
			w.counts.overloaded++
		}
		return
	}
	j.replica.queue = append(j.replica.queue, j)
}

func (w *twin) choose(j *twinJob) bool {
	if j.grouped {
		j.grouped = false
		return true
	}
	if j.rounds == w.cfg.rounds {
		return false
	}
	q := selection.Query{Want: w.cfg.candidates, SilenceLimit: math.MaxInt64, Now: w.now, Exclude: j.refused}
	j.nodes = j.replica.class.Choose(make([]*selection.Node, 0, cell.MaxCandidates), &q, j.replica.rnd)
	if len(j.nodes) == 0 && !j.probed {
		j.probed = true
		q.IgnoreFull, q.Want = true, cell.MaxCandidates
		j.nodes = j.replica.class.Choose(make([]*selection.Node, 0, cell.MaxCandidates), &q, j.replica.rnd)
	}
	if len(j.nodes) == 0 {
		return false
	}
	j.rounds++
	j.taken = j.nodes[0].TryTake(1)
	return true
}

func (w *twin) send(r *twinReplica) {
	most := 2
	if len(r.queue)+r.sent <= 24 {
		most = 8
	}
	if r.calls >= most || len(r.queue) == 0 {
		return
	}
	n := min(len(r.queue), w.cfg.batchItems)
	batch := slices.Clone(r.queue[:n])
	r.queue = r.queue[n:]
	r.calls++
	r.sent += n
	trip := w.cfg.roundTrip.value(0.5)
	w.after(trip/2, false, func() {
		var answers []func()
		met := make(map[*selection.Node]bool)
		for _, j := range batch {
			answers = append(answers, w.script(j, met))
		}
		w.counts.scripts++
		w.counts.met += int64(len(met))
		w.after(trip-trip/2, false, func() {
			r.calls--
			r.sent -= n
			w.send(r)
			for _, answer := range answers {
				answer()
			}
		})
	})
}

// script places a job and returns what its replica does with the answer.
func (w *twin) script(j *twinJob, met map[*selection.Node]bool) func() {
	type refusal struct {
		n    *selection.Node
		used int
	}
	var refusals []refusal
	var placed *selection.Node
	var used int
	for _, n := range j.nodes {
		node := int32(slices.Index(j.replica.views, n))
		met[n] = true
		if int(w.used[node]) < w.cfg.slots[node] {
			w.used[node]++
			placed, used = n, int(w.used[node])
			if used == w.cfg.slots[node] {
				w.publish(node)
			}
			w.counts.begun++
			w.after(j.held, false, func() { w.complete(j.replica, node) })
			break
		}
		refusals = append(refusals, refusal{n, int(w.used[node])})
	}
	if j.counts {
		w.count(j, int64(len(refusals)), placed != nil)
	}
	return func() {
		if placed != nil && placed == j.nodes[0] && j.taken {
			placed.Confirm(1, used)
			j.taken = false
		} else if placed != nil {
			placed.SetUsed(used)
		}
		if j.taken {
			j.nodes[0].Release(1)
		}
		for _, r := range refusals {
			r.n.SetUsed(r.used)
			j.refused = append(j.refused, r.n.ID())
		}
		if placed == nil {
			w.offer(j)
			w.send(j.replica)
		} else {
			w.open--
		}
	}
}

func (w *twin) count(j *twinJob, refused int64, placed bool) {
	c := &w.counts
	c.calls++
	c.refused += refused
	c.tried += refused
	if placed {
		c.tried++
		c.assigned++
		c.rounds[j.rounds-1]++
	} else {
		c.allRefused++
	}
}

func (w *twin) complete(r *twinReplica, node int32) {
	w.counts.ended++
	w.used[node]--
	if int(w.used[node]) == w.cfg.slots[node]-1 {
		w.publish(node)
	}
	used := int(w.used[node])
	w.after(w.cfg.replyDelay.value(0.5), true, func() { r.views[node].SetUsed(used) })
}

func runTwin(cfg config) (counts, error) {
	cfg = cfg.withDefaults()
	rnd := source(cfg.seed, 0)
	w := &twin{cfg: cfg, rnd: rnd, pick: rnd.Int32N, used: make([]int32, len(cfg.slots)), counts: counts{rounds: make([]int64, cfg.rounds)}}
	all := profiles(&cfg)
	for i := range cfg.replicas {
		r := newReplica(&cfg, i, all)
		w.all = append(w.all, &twinReplica{views: r.views, class: r.class, rnd: r.rnd})
	}
	var err error
	if w.jobs, err = newJobs(&cfg); err != nil {
		return counts{}, err
	}
	if cfg.heartbeat > 0 {
		for i := range cfg.slots {
			w.after(rnd.Int64N(int64(cfg.heartbeat)), false, func() { w.beat(int32(i)) })
		}
	}
	w.plan()
	w.run()
	return w.counts, nil
}

// TestTwin: the simulation and its twin agree on everything.
func TestTwin(t *testing.T) {
	t.Parallel()
	refused := int64(0)
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t)
		want, err := runTwin(cfg)
		if err != nil {
			t.Fatal(err)
		}
		got, err := simulate(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.counts, cmp.AllowUnexported(counts{})); diff != "" {
			t.Fatal(diff)
		}
		refused += want.refused
	})
	if refused == 0 {
		t.Error("no run had a conflict")
	}
}

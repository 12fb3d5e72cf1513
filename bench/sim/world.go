package main

import (
	"math"
	"math/rand/v2"
	"slices"
)

// world is a run under way.
type world struct {
	cfg      *config
	now      int64
	agenda   agenda
	truth    *truth
	replicas []*replica
	index    map[string]int32 // of a node, by id
	jobs     *jobs
	counts   counts
	rnd      *rand.Rand
	// comes are the jobs of the next arrival; undecided are the jobs that came and neither began
	// nor were refused.
	comes           []job
	came, undecided int
	from, to        int64 // the window
	// waits are how long jobs waited for their slots, spread and spreads the sum and the number of
	// what the nodes' loads deviated by.
	waits   []int64
	spread  float64
	spreads int
}

// outcome is what a simulation comes to.
type outcome struct {
	counts counts
	// busy is the share of slots taken, on average over the window.
	busy float64
	// waits are from a job's arrival until it has a slot, in order. spread is the standard
	// deviation of the nodes' loads, on average over arrivals.
	waits  []int64
	spread float64
	// leaks names what was not as it was before once all jobs had ended; none is right.
	leaks []string
}

// conflictRate is refused reservations of all that were tried, a node each.
func (o *outcome) conflictRate() float64 {
	if o.counts.tried == 0 {
		return 0
	}
	return float64(o.counts.refused) / float64(o.counts.tried)
}

// simulate makes one run. The error names the fields of cfg that cannot be.
func simulate(cfg config) (*outcome, error) {
	w, err := newWorld(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.prefill {
		w.prefill()
	}
	w.start()
	for w.step() {
	}
	slices.Sort(w.waits)
	o := &outcome{counts: w.counts, waits: w.waits, spread: w.spread / float64(max(w.spreads, 1)), leaks: w.leaks()}
	if window := w.to - w.from; window > 0 {
		o.busy = w.truth.area / float64(window) / float64(sum(cfg.slots))
	}
	return o, nil
}

func newWorld(cfg config) (*world, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	w := &world{cfg: &cfg, truth: newTruth(&cfg), rnd: source(cfg.seed, 0), index: make(map[string]int32, len(cfg.slots))}
	w.counts.rounds = make([]int64, cfg.rounds)
	var err error
	if w.jobs, err = newJobs(&cfg); err != nil {
		return nil, err
	}
	all := profiles(&cfg)
	for i, p := range all {
		w.index[p.Node().ID] = int32(i)
	}
	for i := range cfg.replicas {
		w.replicas = append(w.replicas, newReplica(&cfg, i, all))
	}
	return w, nil
}

// mostPrefill is the largest share of slots that a run can begin with: jobs of an overloaded fleet
// come in the run itself.
const mostPrefill = 0.98

// prefill takes slots as the policy would with views that are never late, each for as long as a job
// that is under way still lasts. All views know.
func (w *world) prefill() {
	for i := range int(min(w.cfg.load(), mostPrefill) * float64(sum(w.cfg.slots))) {
		p := &placement{job: job{held: w.jobs.remaining()}, replica: -1}
		by := w.replicas[i%len(w.replicas)]
		q := w.query(p)
		q.Want = 1
		picked := by.class.Choose(p.room[:0], &q, by.rnd)
		if len(picked) == 0 {
			continue
		}
		node := w.index[picked[0].ID()]
		w.truth.used[node]++
		w.truth.taken++
		w.begin(p, node)
		for _, r := range w.replicas {
			r.views[node].SetUsed(int(w.truth.used[node]))
		}
	}
}

func (w *world) start() {
	if beat := int64(w.cfg.heartbeat); beat > 0 {
		for i := range w.truth.slots {
			w.agenda.add(entry{at: w.rnd.Int64N(beat), kind: heartbeat, node: int32(i)})
		}
	}
	w.plan()
}

// plan has the next jobs arrive, when the last of them has come.
func (w *world) plan() {
	w.comes = w.comes[:0]
	for range min(w.cfg.together, w.cfg.warmUp+w.cfg.jobs-w.came) {
		w.comes = append(w.comes, w.jobs.following())
	}
	at := max(w.comes[len(w.comes)-1].at, w.now)
	w.agenda.add(entry{at: at, kind: arrive, who: w.rnd.Int32N(int32(w.cfg.replicas))})
}

// step lets the next thing happen; false when nothing is to come.
func (w *world) step() bool {
	e, ok := w.agenda.next()
	if !ok {
		return false
	}
	w.now = e.at
	switch e.kind {
	case arrive:
		w.arrive(e.who)
	case run:
		w.submit(e.call)
		w.agenda.add(entry{at: w.now + e.call.back, kind: answer, call: e.call})
	case answer:
		w.answer(e.call)
	case complete:
		w.free(e.who, e.node)
	case heartbeat:
		w.beat(e.node)
	}
	return true
}

// arrive lets jobs come, and plans the next ones.
func (w *world) arrive(who int32) {
	all := make([]*placement, len(w.comes))
	for i, j := range w.comes {
		all[i] = w.come(job{w.now, j.held}, who)
	}
	w.measureSpread()
	if w.came < w.cfg.warmUp+w.cfg.jobs {
		w.plan()
	} else {
		w.truth.elapse(w.now)
		w.truth.measure = false
		w.to = w.now
	}
	if w.cfg.groups {
		w.chooseAlike(all)
	}
	for _, p := range all {
		w.offer(p)
	}
	for w.send(who) {
	}
}

// come lets one job come.
func (w *world) come(j job, who int32) *placement {
	p := &placement{job: j, replica: who, measured: w.came >= w.cfg.warmUp, assigned: -1}
	if w.came == w.cfg.warmUp {
		w.truth.elapse(w.now)
		w.truth.measure = true
		w.from = w.now
	}
	if p.measured {
		w.counts.arrived++
	}
	w.came++
	w.undecided++
	return p
}

func (w *world) measureSpread() {
	if !w.cfg.spread || w.came <= w.cfg.warmUp {
		return
	}
	sum, squares, n := 0.0, 0.0, float64(len(w.truth.slots))
	for i, slots := range w.truth.slots {
		load := float64(w.truth.used[i]) / float64(slots)
		sum, squares = sum+load, squares+load*load
	}
	w.spread += math.Sqrt(max(squares/n-sum/n*sum/n, 0))
	w.spreads++
}

// offer has the job take part in its replica's next call, or gives it up as overloaded.
func (w *world) offer(p *placement) {
	if w.choose(p) {
		r := w.replicas[p.replica]
		r.queue = append(r.queue, p)
		return
	}
	w.undecided--
	if p.measured {
		w.counts.overloaded++
	}
}

// send makes the replica's next call. It returns false if as many are under way as may be or there
// is nothing to send.
func (w *world) send(who int32) bool {
	r := w.replicas[who]
	if r.calls >= r.callsAllowed() || len(r.queue) == 0 {
		return false
	}
	n := min(len(r.queue), w.cfg.batchItems)
	c := &call{replica: who, items: append([]*placement(nil), r.queue[:n]...)}
	r.queue = append(r.queue[:0], r.queue[n:]...)
	r.calls++
	r.carried += n
	trip := w.cfg.roundTrip.draw(r.trips)
	c.back = trip - trip/2
	w.agenda.add(entry{at: w.now + trip/2, kind: run, call: c})
	return true
}

// answer brings a call's results to its replica. The next call leaves first, as the loop that makes
// calls goes on while its callers still wake up.
func (w *world) answer(c *call) {
	r := w.replicas[c.replica]
	w.catchUp(r)
	r.calls--
	r.carried -= len(c.items)
	w.send(c.replica)
	for _, p := range c.items {
		p.accept()
		if p.assigned >= 0 {
			w.undecided--
			continue
		}
		w.offer(p)
		w.send(c.replica)
	}
}

// beat is the script of a heartbeat, and the plan of the next, until all jobs have come and are
// decided.
func (w *world) beat(node int32) {
	if w.came == w.cfg.warmUp+w.cfg.jobs && w.undecided == 0 {
		return
	}
	w.counts.heartbeats++
	w.publish(node)
	tenth := int64(w.cfg.heartbeat) / 10
	w.agenda.add(entry{at: w.now + int64(w.cfg.heartbeat) - tenth + w.rnd.Int64N(2*tenth+1), kind: heartbeat, node: node})
}

// leaks looks for what must be back to nothing at the end.
func (w *world) leaks() (found []string) {
	want := func(ok bool, what string) {
		if !ok {
			found = append(found, what)
		}
	}
	c := &w.counts
	want(c.arrived == int64(w.cfg.jobs) && c.arrived == c.assigned+c.overloaded, "jobs that neither began nor were refused")
	want(c.ended == c.begun, "jobs that began and did not end")
	want(w.undecided == 0, "jobs that are undecided")
	want(w.truth.taken == 0, "slots that are taken")
	inUse, pending := 0, 0
	for i := range w.truth.used {
		inUse += int(w.truth.used[i] + w.truth.running[i])
	}
	for _, r := range w.replicas {
		for _, n := range r.views {
			_, p := n.Load()
			pending += p
		}
	}
	want(inUse == 0, "nodes with slots in use")
	want(pending == 0, "views with pending slots")
	return found
}

// counts are what happened to the jobs that count; begun, ended, overCommits and heartbeats are of
// the whole run.
type counts struct {
	arrived, assigned int64
	// overloaded counts jobs that were refused for good.
	overloaded int64
	// calls counts jobs offered in calls: once for each round of each job. allRefused are those
	// without a slot.
	calls, allRefused int64
	// tried counts the nodes at which the script looked, refused those that were full: the
	// conflicts.
	tried, refused int64
	// scripts counts the calls, and met the nodes at which they looked, once for each call. Both
	// are of the whole run.
	scripts, met int64
	// rounds[i] counts jobs that were assigned in the round i+1.
	rounds []int64

	begun, ended, heartbeats int64
	// overCommits counts jobs begun beyond a node's slots; anything but 0 is a defect.
	overCommits int64
}

// call counts one job's part in a call.
func (c *counts) call(p *placement) {
	if !p.measured {
		return
	}
	c.calls++
	if p.assigned < 0 {
		c.allRefused++
		c.tried += int64(len(p.candidates))
		c.refused += int64(len(p.candidates))
		return
	}
	c.rounds[p.rounds-1]++
	c.tried += int64(p.assigned) + 1
	c.refused += int64(p.assigned)
}

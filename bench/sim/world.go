package sim

import (
	"math/rand/v2"
	"time"
)

// world is a run under way.
type world struct {
	cfg      *Config
	now      int64
	agenda   agenda
	truth    *truth
	replicas []*replica
	index    map[string]int32 // of a node, by id
	jobs     *jobs
	ideal    *ideal
	tally    *tally
	rnd      *rand.Rand
	// comes is the next arrival; undecided are the jobs that came and neither began nor were refused.
	comes     job
	came      int
	undecided int
	trimAt    int
	// spreadEvery is how many arrivals lie between two looks at how evenly the nodes are loaded.
	spreadEvery int
	spread      spread
}

// spreadLooks is how often the load spread is looked at in a run.
const spreadLooks = 100

// Run simulates. The error names the fields of cfg that cannot be.
func Run(cfg Config) (*Result, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	w, err := newWorld(&cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Prefill {
		w.prefill()
	}
	w.run()
	return w.result(), nil
}

// run lets everything happen until nothing is to come.
func (w *world) run() {
	w.start()
	for {
		e, ok := w.agenda.next()
		if !ok {
			return
		}
		w.now = e.at
		w.happen(&e)
	}
}

func newWorld(cfg *Config) (*world, error) {
	w := &world{
		cfg: cfg, truth: newTruth(cfg), tally: newTally(cfg), rnd: source(cfg.Seed, 0), trimAt: heldEvents,
		ideal: newIdeal(cfg), spreadEvery: max(cfg.Jobs/spreadLooks, 1), index: make(map[string]int32, len(cfg.Slots)),
	}
	var err error
	if w.jobs, err = newJobs(cfg); err != nil {
		return nil, err
	}
	all := profiles(cfg)
	for i, p := range all {
		w.index[p.Node().ID] = int32(i)
	}
	for i := range cfg.Replicas {
		w.replicas = append(w.replicas, newReplica(cfg, i, all))
	}
	return w, nil
}

// mostPrefill is the largest share of slots that a run can begin with: jobs of an overloaded fleet queue up in
// the run itself.
const mostPrefill = 0.98

// prefill takes slots as the policy would with views that are never late, each for as long as a job that is
// under way still lasts. All views know.
func (w *world) prefill() {
	slots := 0
	for _, n := range w.truth.slots {
		slots += int(n)
	}
	for i := range int(min(w.cfg.load(), mostPrefill) * float64(slots)) {
		p := &placing{job: job{held: w.jobs.remaining()}, replica: -1}
		if w.cfg.Pools > 1 {
			p.job.pool = w.rnd.Int32N(int32(w.cfg.Pools))
		}
		by := w.replicas[i%len(w.replicas)]
		q := w.query(p)
		q.Want = 1
		picked := by.classes[p.job.pool].Choose(p.room[:0], &q, by.rnd)
		if len(picked) == 0 {
			continue // its pool is full
		}
		node := w.index[picked[0].ID()]
		w.truth.used[node]++
		w.truth.taken++
		w.truth.spare[p.job.pool]--
		w.begin(p, node)
		w.ideal.add(p.job.pool, p.job.held)
		for _, r := range w.replicas {
			r.views[node].SetUsed(int(w.truth.used[node]))
		}
	}
}

func (w *world) start() {
	if beat := int64(w.cfg.Heartbeat); beat > 0 {
		for i := range w.truth.slots {
			w.agenda.add(entry{at: w.rnd.Int64N(beat), kind: sendBeat, node: int32(i)})
		}
	}
	w.comes = w.jobs.following()
	w.agenda.add(entry{at: w.comes.at, kind: arrive, who: w.rnd.Int32N(int32(w.cfg.Replicas))})
}

func (w *world) happen(e *entry) {
	switch e.kind {
	case arrive:
		w.arrive(e.who)
	case reach:
		w.serve(int64(w.cfg.CallTime)+int64(w.cfg.ItemTime)*int64(len(e.call.items)), entry{kind: run, call: e.call})
	case run:
		w.submit(e.call)
		w.agenda.add(entry{at: w.now + e.call.back, kind: answer, call: e.call})
	case answer:
		w.answer(e.call)
	case complete:
		w.serve(int64(w.cfg.CompleteTime), entry{kind: completed, who: e.who, node: e.node})
	case completed:
		w.free(e.who, e.node)
	case sendBeat:
		w.serve(int64(w.cfg.HeartbeatTime), entry{kind: beaten, node: e.node})
	case beaten:
		w.beaten(e.node)
	case deliver:
		w.deliver(e.who)
	case compare:
		w.compare(e.who)
	case compared:
		w.compared(e.who)
	case queue:
		w.wait(e.job)
	case match:
		w.match(e.job.job.pool)
	}
}

// arrive lets a job come, and says when the next one does.
func (w *world) arrive(who int32) {
	p := &placing{job: w.comes, replica: who, measured: w.came >= w.cfg.WarmUp, assigned: -1}
	if w.came == w.cfg.WarmUp {
		w.truth.elapse(w.now)
		w.truth.measure = true
		w.tally.from = w.now
	}
	w.tally.arrived(p, w.ideal.delay(p.job))
	if p.measured && (w.came-w.cfg.WarmUp)%w.spreadEvery == 0 {
		w.spread.look(w.truth)
	}
	w.came++
	w.undecided++
	if w.came < w.cfg.WarmUp+w.cfg.Jobs {
		w.comes = w.jobs.following()
		w.agenda.add(entry{at: max(w.comes.at, w.now), kind: arrive, who: w.rnd.Int32N(int32(w.cfg.Replicas))})
	} else {
		w.truth.elapse(w.now)
		w.truth.measure = false
		w.tally.to = w.now
	}
	w.offer(p)
}

// offer has the job take part in its replica's next call, or gives it up.
func (w *world) offer(p *placing) {
	if w.choose(p) {
		r := w.replicas[p.replica]
		r.queue = append(r.queue, p)
		w.send(p.replica)
		return
	}
	if w.cfg.Full == FullWait {
		w.agenda.add(entry{at: w.now + w.replicas[p.replica].trip.draw()/2, kind: queue, job: p})
		return
	}
	w.tally.overloaded(p)
	w.decided(p)
}

// How many submit calls a cell of the product keeps under way: callsOfFew while no more than fewJobs are in them or
// wait for one.
const (
	callsUnderWay = 2
	callsOfFew    = 8
	fewJobs       = 3 * callsOfFew
)

func (r *replica) callsAllowed() int {
	if len(r.queue)+r.carried > fewJobs {
		return callsUnderWay
	}
	return callsOfFew
}

// send makes the replica's next call, unless as many are under way as may be or there is nothing to send.
func (w *world) send(who int32) {
	r := w.replicas[who]
	if r.flying >= r.callsAllowed() || len(r.queue) == 0 {
		return
	}
	n := min(len(r.queue), w.cfg.BatchItems)
	c := &call{replica: who, items: append([]*placing(nil), r.queue[:n]...)}
	r.queue = append(r.queue[:0], r.queue[n:]...)
	r.flying++
	r.carried += n
	trip := r.trip.draw()
	forward := int64(w.cfg.ForwardShare * float64(trip))
	c.back = trip - forward
	w.tally.sent(c)
	w.agenda.add(entry{at: w.now + forward, kind: reach, call: c})
}

// answer brings a call's results to its replica. The next call leaves first, as the loop that makes calls goes
// on while its callers still wake up.
func (w *world) answer(c *call) {
	r := w.replicas[c.replica]
	w.catchUp(r)
	r.flying--
	r.carried -= len(c.items)
	w.send(c.replica)
	for _, p := range c.items {
		p.settle()
		if p.assigned >= 0 {
			w.decided(p)
			continue
		}
		w.offer(p)
	}
}

func (w *world) decided(p *placing) {
	if p.replica >= 0 {
		w.undecided--
	}
}

// over reports whether all jobs have come and are decided: what is left is for slots to become free.
func (w *world) over() bool { return w.came == w.cfg.WarmUp+w.cfg.Jobs && w.undecided == 0 }

// beaten is the script of a heartbeat, and the plan of the next.
func (w *world) beaten(node int32) {
	if w.over() {
		return
	}
	w.tally.Heartbeats++
	w.publish(node)
	tenth := int64(w.cfg.Heartbeat) / 10
	w.agenda.add(entry{at: w.now + int64(w.cfg.Heartbeat) - tenth + w.rnd.Int64N(2*tenth+1), kind: sendBeat, node: node})
}

// seconds is a time of the run in seconds.
func seconds(at int64) float64 { return time.Duration(at).Seconds() }

package sim

// truth is what Redis holds: the slots in use, the jobs that wait, and the events that were published.
type truth struct {
	slots, used []int32
	// running counts the jobs that hold a slot apart from used, to check it.
	running []int32
	// spare are the free slots of each pool.
	spare []int
	// waiting are the jobs that wait, by pool, first come first.
	waiting [][]*placing
	// freeAt is when Redis has done what reached it so far.
	freeAt int64

	log  []event
	base int // of log[0], counted from the run's begin

	taken   int64 // slots in use, of all nodes
	area    float64
	areaAt  int64
	measure bool // area counts
}

// event is an entry of the log: at says when it was published.
type event struct {
	at         int64
	node, used int32
}

// call is one run of the submit script.
type call struct {
	replica int32
	items   []*placing
	back    int64 // the way back
}

func newTruth(cfg *Config) *truth {
	t := &truth{
		slots: make([]int32, len(cfg.Slots)), used: make([]int32, len(cfg.Slots)), running: make([]int32, len(cfg.Slots)),
		spare: make([]int, max(cfg.Pools, 1)), waiting: make([][]*placing, max(cfg.Pools, 1)),
	}
	for i, n := range cfg.Slots {
		t.slots[i] = int32(n)
		t.spare[i%len(t.spare)] += n
	}
	return t
}

// pool is the pool of a node.
func (t *truth) pool(node int32) int { return int(node) % len(t.spare) }

// elapse brings the integral of the slots in use up to now.
func (t *truth) elapse(now int64) {
	if t.measure {
		t.area += float64(t.taken) * float64(now-t.areaAt)
	}
	t.areaAt = now
}

// serve has Redis do what takes this long and reaches it now, after what reached it before.
func (w *world) serve(takes int64, e entry) {
	t := w.truth
	if takes == 0 && t.freeAt <= w.now {
		w.happen(&e)
		return
	}
	t.freeAt = max(t.freeAt, w.now) + takes
	e.at = t.freeAt
	w.agenda.add(e)
}

// submit is the script of that name.
func (w *world) submit(c *call) {
	for _, p := range c.items {
		p.assigned = -1
		for i := range p.candidates {
			node := p.nodes[i]
			if w.truth.used[node] < w.truth.slots[node] {
				p.assigned = i
				w.assign(p, node)
				p.used[i] = w.truth.used[node]
				break
			}
			p.used[i] = w.truth.used[node]
		}
		w.tally.call(p)
	}
}

// assign gives a free slot to the job.
func (w *world) assign(p *placing, node int32) {
	t := w.truth
	t.elapse(w.now)
	t.used[node]++
	t.taken++
	t.spare[t.pool(node)]--
	if t.used[node] == t.slots[node] {
		w.publish(node)
	}
	w.begin(p, node)
}

// begin starts the job in a slot that is its own.
func (w *world) begin(p *placing, node int32) {
	if w.truth.running[node]++; w.truth.running[node] > w.truth.slots[node] {
		w.tally.OverCommits++
	}
	w.tally.started(p, w.now)
	w.agenda.add(entry{at: w.now + p.job.held, kind: complete, who: p.replica, node: node})
}

// free is the script complete: the slot goes to the first waiting job, or becomes free.
func (w *world) free(by, node int32) {
	t := w.truth
	t.running[node]--
	w.tally.Ended++
	if pool := t.pool(node); len(t.waiting[pool]) > 0 {
		p := t.waiting[pool][0]
		t.waiting[pool] = t.waiting[pool][1:]
		w.begin(p, node)
		w.decided(p)
	} else {
		t.elapse(w.now)
		t.used[node]--
		t.taken--
		t.spare[pool]++
		if t.used[node] == t.slots[node]-1 {
			w.publish(node)
		}
	}
	if by < 0 {
		return // a job of before the run
	}
	r := w.replicas[by]
	r.replied = append(r.replied, reply{at: r.replies.arrival(w.now), node: node, used: t.used[node]})
}

// wait puts the job behind the others that wait. If there is a free slot all the same, whose completion came
// before, somebody sees that as soon as an event tells.
func (w *world) wait(p *placing) {
	t := w.truth
	t.waiting[p.job.pool] = append(t.waiting[p.job.pool], p)
	if t.spare[p.job.pool] > 0 {
		w.rematch(p)
	}
}

func (w *world) rematch(p *placing) {
	w.agenda.add(entry{at: w.now + max(w.replicas[p.replica].events.draw(), 1), kind: match, who: p.replica, job: p})
}

// match gives a free slot to the first waiting job, as a replica does that sees both.
func (w *world) match(pool int32) {
	t := w.truth
	if len(t.waiting[pool]) == 0 || t.spare[pool] == 0 {
		return
	}
	p := t.waiting[pool][0]
	t.waiting[pool] = t.waiting[pool][1:]
	w.assign(p, w.anyFree(pool))
	w.decided(p)
}

// anyFree is a node of the pool with a free slot, the first behind a random one.
func (w *world) anyFree(pool int32) int32 {
	t := w.truth
	pools := int32(len(t.spare))
	members := (int32(len(t.used)) - pool + pools - 1) / pools
	for i, at := int32(0), w.rnd.Int32N(members); i < members; i, at = i+1, at+1 {
		node := pool + pools*(at%members)
		if t.used[node] < t.slots[node] {
			return node
		}
	}
	panic("sim: a pool with spare slots has no node with one")
}

// heldEvents is how long the log may grow before what all replicas have taken in is dropped.
const heldEvents = 1 << 16

// publish tells all replicas how many slots of a node are in use.
func (w *world) publish(node int32) {
	t := w.truth
	t.log = append(t.log, event{at: w.now, node: node, used: t.used[node]})
	if w.cfg.Loss > 0 {
		for i, r := range w.replicas {
			w.arm(int32(i), r)
		}
	}
	if len(t.log) >= w.trimAt {
		w.trim()
		w.trimAt = len(t.log) + heldEvents
	}
}

// end is behind the last event, counted from the run's begin.
func (t *truth) end() int { return t.base + len(t.log) }

func (t *truth) event(i int) event { return t.log[i-t.base] }

// trim drops the entries that every replica has taken in.
func (w *world) trim() {
	least := w.truth.end()
	for _, r := range w.replicas {
		if w.cfg.Loss == 0 {
			w.catchUp(r)
		}
		least = min(least, r.next)
		if r.gap >= 0 {
			least = min(least, r.gap)
		}
	}
	w.truth.log = append(w.truth.log[:0], w.truth.log[least-w.truth.base:]...)
	w.truth.base = least
}

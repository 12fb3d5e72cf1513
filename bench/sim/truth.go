package main

// heldEvents is how long the log may grow before what all replicas have taken in is dropped.
const heldEvents = 1 << 16

// truth is what Redis holds: the slots in use, and the events that were published.
type truth struct {
	slots, used []int32
	// running counts the jobs that hold a slot apart from used, to check it.
	running []int32

	log    []event
	base   int // of log[0], counted from the run's begin
	trimAt int

	taken   int64 // slots in use, of all nodes
	area    float64
	areaAt  int64
	measure bool // area counts
}

// event is an entry of the log: at is when it was published.
type event struct {
	at         int64
	node, used int32
}

// call is one run of the submit script.
type call struct {
	replica int32
	items   []*placement
	back    int64 // the way back
}

func newTruth(cfg *config) *truth {
	t := &truth{slots: make([]int32, len(cfg.slots)), used: make([]int32, len(cfg.slots)), running: make([]int32, len(cfg.slots)), trimAt: heldEvents}
	for i, n := range cfg.slots {
		t.slots[i] = int32(n)
	}
	return t
}

// elapse brings the integral of the slots in use up to now.
func (t *truth) elapse(now int64) {
	if t.measure {
		t.area += float64(t.taken) * float64(now-t.areaAt)
	}
	t.areaAt = now
}

// end is behind the last event, counted from the run's begin.
func (t *truth) end() int { return t.base + len(t.log) }

func (t *truth) event(i int) event { return t.log[i-t.base] }

// submit is the script of that name.
func (w *world) submit(c *call) {
	t, met := w.truth, make(map[int32]bool)
	defer func() { w.counts.met += int64(len(met)) }()
	w.counts.scripts++
	for _, p := range c.items {
		p.assigned = -1
		for i := range p.candidates {
			node := p.nodes[i]
			met[node] = true
			free := t.used[node] < t.slots[node]
			if free {
				t.elapse(w.now)
				t.used[node]++
				t.taken++
				if t.used[node] == t.slots[node] {
					w.publish(node)
				}
				w.begin(p, node)
			}
			p.used[i] = t.used[node]
			if free {
				p.assigned = i
				break
			}
		}
		w.counts.call(p)
	}
}

// begin starts the job in a slot that is its own.
func (w *world) begin(p *placement, node int32) {
	if w.truth.running[node]++; w.truth.running[node] > w.truth.slots[node] {
		w.counts.overCommits++
	}
	w.counts.begun++
	if p.measured {
		w.counts.assigned++
		w.waits = append(w.waits, w.now-p.job.at)
	}
	w.agenda.add(entry{at: w.now + p.job.held, kind: complete, who: p.replica, node: node})
}

// free is the script complete.
func (w *world) free(by, node int32) {
	t := w.truth
	t.running[node]--
	w.counts.ended++
	t.elapse(w.now)
	t.used[node]--
	t.taken--
	if t.used[node] == t.slots[node]-1 {
		w.publish(node)
	}
	if by < 0 {
		return // a job of before the run
	}
	r := w.replicas[by]
	r.replied = append(r.replied, reply{at: r.replies.arrival(w.now), node: node, used: t.used[node]})
}

// publish adds to the log how many slots of a node are in use.
func (w *world) publish(node int32) {
	t := w.truth
	t.log = append(t.log, event{at: w.now, node: node, used: t.used[node]})
	if len(t.log) >= t.trimAt {
		w.trim()
		t.trimAt = len(t.log) + heldEvents
	}
}

// trim drops the entries that every replica has taken in.
func (w *world) trim() {
	t, least := w.truth, w.truth.end()
	for _, r := range w.replicas {
		w.catchUp(r)
		least = min(least, r.next)
	}
	t.log = append(t.log[:0], t.log[least-t.base:]...)
	t.base = least
}

package history

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

const (
	// gapAfter is the longest time between two reports whose difference counts. What a replica did
	// during a longer silence is not known by time.
	gapAfter = 10 * time.Second
	// settleAfter is how long a step is open for late reports before it is shown.
	settleAfter = 4 * time.Second
)

// Step is the time between the points of a ring.
type Step time.Duration

// The steps, and how far back each of them reaches.
const (
	Fine   = Step(2 * time.Second)
	Middle = Step(10 * time.Second)
	Coarse = Step(time.Minute)

	fineReach   = 15 * time.Minute
	middleReach = 3 * time.Hour
	coarseReach = 24 * time.Hour
)

// Report is what the presence of a replica brought.
type Report struct {
	Replica string
	// AtMS is when the replica made it, by Redis' clock.
	AtMS int64
	// Figures are encoded. Figures of another release count as none.
	Figures string
}

// known is the last report of a replica.
type known struct {
	at      int64
	figures Figures
	// cpu is the cores that it used, arrivals the jobs a second that it took or refused, since the
	// report before; none if that is not known.
	cpu, arrivals float64
}

// History keeps the figures of the system over time. It is safe for concurrent use.
type History struct {
	mu       sync.Mutex // guards the fields that follow
	rings    [3]*ring   // from the finest
	replicas map[string]known
	names    []string // of all running replicas, also those of an older release
	// coveredTo and seenTo are the ends of the time that the rings know counters, and ends, of.
	coveredTo, seenTo int64
	// now is the time of the last report by Redis' clock, and heard the local time of it.
	now   int64
	heard time.Time
	// began is the time of the first report.
	began int64
	// ready is the end of the last fine step that is shown.
	ready int64
	seq   uint64

	long *Prometheus // nil without one; set before others see the History
}

// New makes an empty history.
func New() *History {
	return &History{
		rings: [...]*ring{
			newRing(time.Duration(Fine), fineReach), newRing(time.Duration(Middle), middleReach),
			newRing(time.Duration(Coarse), coarseReach),
		},
		replicas: make(map[string]known),
	}
}

// UsePrometheus gets the figures of more than 24 hours from p. Call it before the History is
// shared.
func (h *History) UsePrometheus(p *Prometheus) { h.long = p }

// Observe takes in the last reports of all running replicas, as of now in milliseconds since 1970
// by Redis' clock.
func (h *History) Observe(now int64, all []Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now <= 0 {
		return
	}
	if now < h.now { // the clock went back, as after a failover
		h.forgetAfter(now)
	}
	h.now, h.heard, h.began = now, time.Now(), cmp.Or(h.began, now)
	before, current := h.replicas, make(map[string]known, len(all))
	h.names = h.names[:0]
	for _, r := range all {
		h.names = append(h.names, r.Replica)
		if f, err := Decode(r.Figures); err == nil && r.AtMS > 0 {
			current[r.Replica] = known{at: r.AtMS, figures: f, cpu: none, arrivals: none}
		}
	}
	h.replicas = current
	h.count(before)
	h.look(before)
	var memory float32 = none
	for _, k := range current {
		if k.figures.Memory != Unknown {
			memory = max(memory, 0) + float32(k.figures.Memory)
		}
	}
	for _, r := range h.rings {
		r.raise(now, replicasAt, float32(len(all)))
		r.raise(now, memoryAt, memory)
	}
	h.settle()
}

// Now returns the time by Redis' clock, which goes on since the last report, and false before the
// first one.
func (h *History) Now() (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now == 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(h.now).Add(time.Since(h.heard)), true
}

// forgetAfter voids the points after now, which would keep new ones out. The caller holds mu.
func (h *History) forgetAfter(now int64) {
	for _, r := range h.rings {
		for i := range r.points {
			if p := &r.points[i]; (p.number+1)*r.step > now {
				p.number = void
			}
		}
	}
	h.coveredTo, h.seenTo, h.ready = min(h.coveredTo, now), min(h.seenTo, now), min(h.ready, now)
}

// follows reports whether the differences between two reports of a replica count.
func (k *known) follows(b *known) bool {
	if b.at == 0 || b.figures.StartMS != k.figures.StartMS || k.at <= b.at ||
		k.at-b.at > gapAfter.Milliseconds() {
		return false
	}
	// A counter that fell: this is another run, whatever it says.
	for i := range k.figures.Counters {
		if k.figures.Counters[i] < b.figures.Counters[i] {
			return false
		}
	}
	for i := range k.figures.Histograms {
		for j := range buckets {
			if k.figures.Histograms[i][j] < b.figures.Histograms[i][j] {
				return false
			}
		}
	}
	return true
}

// count adds what the replicas have counted since their reports of before. The caller holds mu.
func (h *History) count(before map[string]known) {
	type step struct{ from, to known }
	var steps []step
	for name, k := range h.replicas {
		if b := before[name]; k.follows(&b) {
			steps = append(steps, step{b, k})
			h.replicas[name] = k.rated(&b)
		} else if k.at == b.at {
			h.replicas[name] = b
		}
	}
	// In the order of time: a report that begins later would hide what only an earlier one covers.
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.from.at, b.from.at) })
	for _, s := range steps {
		d := difference(&s.from.figures, &s.to.figures)
		for _, r := range h.rings {
			r.spread(s.from.at, s.to.at, func(p *point, _, part float32) {
				for i, n := range d {
					p.sums[i] += n * part
				}
			})
			r.spread(max(s.from.at, h.coveredTo), s.to.at, func(p *point, ms, _ float32) { p.covered += ms })
		}
		h.coveredTo = max(h.coveredTo, s.to.at)
	}
}

// rated returns k with what the replica did since b.
func (k known) rated(b *known) known {
	seconds, now, before := float64(k.at-b.at)/1000, &k.figures.Counters, &b.figures.Counters
	k.cpu = float64(now[CPU]-before[CPU]) / 1e6 / seconds
	k.arrivals = 0
	for _, i := range []int{Placed, Queued, Refused} {
		k.arrivals += float64(now[i]-before[i]) / seconds
	}
	return k
}

// difference returns what was counted between two reports, without ends.
func difference(a, b *Figures) (d [sums]float32) {
	for i := range counters {
		d[i] = float32(b.Counters[i] - a.Counters[i])
	}
	for i := range histograms {
		for j := range buckets {
			d[histogramsAt+i*buckets+j] = float32(b.Histograms[i][j] - a.Histograms[i][j])
		}
	}
	return d
}

// look takes the gauges and the ends from one replica, so that they agree with each other: the
// first by name of those that see the most cells, and tell ends by state. The caller holds mu.
func (h *History) look(before map[string]known) {
	source := ""
	for name, k := range h.replicas {
		if k.figures.Cells > 0 && (source == "" || tellsMore(name, source, k, h.replicas[source])) {
			source = name
		}
	}
	k := h.replicas[source]
	if k.figures.Cells == 0 {
		return
	}
	for _, r := range h.rings {
		for i, v := range k.figures.Gauges {
			r.raise(k.at, i, float32(v))
		}
	}
	b := before[source]
	if b.figures.Cells == 0 || !k.follows(&b) {
		return
	}
	// Another source may have told of the first part.
	from := max(b.at, h.seenTo)
	states := k.figures.States && b.figures.States
	part := float32(k.at-from) / float32(k.at-b.at)
	for _, r := range h.rings {
		r.spread(from, k.at, func(p *point, ms, share float32) {
			for i := range ends {
				if i > Ended && !states {
					break // what an older release does not tell began at 0
				}
				if n := k.figures.Ends[i]; n > b.figures.Ends[i] {
					p.sums[endsAt+i] += float32(n-b.figures.Ends[i]) * part * share
				}
			}
			p.seen += ms
			if states {
				p.parted += ms
			}
		})
	}
	h.seenTo = max(h.seenTo, k.at)
}

// tellsMore reports whether the figures a of a replica are to be taken rather than b of another.
func tellsMore(name, other string, a, b known) bool {
	switch {
	case a.figures.Cells != b.figures.Cells:
		return a.figures.Cells > b.figures.Cells
	case a.figures.States != b.figures.States:
		return a.figures.States
	}
	return name < other
}

// settle shows the steps about which all replicas have reported, or have had the time to. The
// caller holds mu.
func (h *History) settle() {
	to := h.now
	for _, k := range h.replicas {
		to = min(to, k.at)
	}
	fine, before := h.rings[0], h.ready/h.rings[0].step
	h.ready = max(h.ready, max(to, h.now-settleAfter.Milliseconds())/fine.step*fine.step)
	h.seq++
	end := h.ready / fine.step
	if before == 0 {
		before = end // what was before this process is no gap that it saw
	}
	for n := max(end-int64(len(fine.points)), 0); n < end; n++ {
		p := fine.get(n)
		if p == nil && n >= before {
			p = fine.at(n) // a gap, which is news
		}
		if p != nil && (p.dirty || p.seq == 0) {
			p.seq, p.dirty = h.seq, false
		}
	}
}

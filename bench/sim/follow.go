package sim

import "time"

// calm is the least time from one comparison to the next that a gap can cause, as in internal/cache.
const calm = 50 * time.Millisecond

// catchUp brings a replica's view up to now: the events and replies that have arrived, in that order. Where
// events can be lost they are taken in by deliver instead, each at its moment.
func (w *world) catchUp(r *replica) {
	for {
		at, ok := w.nextEvent(r)
		due := ok && at <= w.now && w.cfg.Loss == 0
		answered := len(r.replied) > 0 && r.replied[0].at <= w.now
		switch {
		case due && (!answered || at <= r.replied[0].at):
			w.takeIn(r)
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
	if r.asking || r.next == w.truth.end() {
		return 0, false
	}
	if r.nextAt < 0 {
		r.nextAt = r.events.arrival(w.truth.event(r.next).at)
	}
	return r.nextAt, true
}

// takeIn applies the next event.
func (w *world) takeIn(r *replica) {
	e := w.truth.event(r.next)
	r.views[e.node].SetUsed(int(e.used))
	r.pass()
}

// pass leaves the next event behind.
func (r *replica) pass() {
	r.next++
	r.nextAt = -1
}

// arm has the next event delivered when it arrives, where events can be lost: what a gap makes the replica
// read depends on the moment at which the gap is seen.
func (w *world) arm(index int32, r *replica) {
	if r.armed {
		return
	}
	if at, ok := w.nextEvent(r); ok {
		r.armed = true
		w.agenda.add(entry{at: max(at, w.now), kind: deliver, who: index})
	}
}

// deliver takes in one event, unless it is lost or shows that one was.
func (w *world) deliver(index int32) {
	r := w.replicas[index]
	r.armed = false
	w.catchUp(r)
	switch {
	case r.events.rnd.Float64() < w.cfg.Loss:
		w.tally.Lost++
		if r.gap < 0 {
			r.gap = r.next
		}
		r.pass()
	case r.gap >= 0:
		r.asking = true
		asked := max(w.now, r.calmAt)
		w.agenda.add(entry{at: asked + r.trip.draw()/2, kind: compare, who: index})
	default:
		w.takeIn(r)
	}
	w.arm(index, r)
}

// compare reads what has changed since the gap, as it is now.
func (w *world) compare(index int32) {
	r := w.replicas[index]
	r.fetched = r.fetched[:0]
	for i := r.gap; i < w.truth.end(); i++ {
		node := w.truth.event(i).node
		r.fetched = append(r.fetched, fresh{node: node, used: w.truth.used[node]})
	}
	r.next, r.nextAt, r.gap = w.truth.end(), -1, -1
	w.agenda.add(entry{at: w.now + r.trip.draw()/2, kind: compared, who: index})
}

// compared takes over what was read, and goes on with the events.
func (w *world) compared(index int32) {
	r := w.replicas[index]
	w.catchUp(r)
	for _, f := range r.fetched {
		r.views[f.node].SetUsed(int(f.used))
	}
	w.tally.Resyncs++
	r.asking = false
	r.calmAt = w.now + int64(calm)
	w.arm(index, r)
}

package cache

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/cell/profile"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

func (f *follower) receive(message string) {
	m := f.cache.metrics
	e, err := events.Decode(message)
	if err != nil {
		m.badEvents.Inc()
		if f.catchUp("bad event") {
			f.log.Warn("cache.bad_event", zap.Error(err))
		}
		return
	}
	m.events.WithLabelValues(e.Kind.String()).Inc()
	switch last := f.revision.Load(); {
	case e.Revision <= last:
		// A resynchronisation has applied it already. If the counter went back, the next comparison
		// notices.
	case e.Revision == last+1:
		m.eventDelay.Observe(time.Duration(f.cache.clock.now() - f.localNow(e.AtMS)).Seconds())
		if f.outdated(&e) || f.apply(&e) {
			f.revision.Store(e.Revision)
		} else {
			f.catchUp("unknown node")
		}
	default:
		if f.gapAt != last { // count a gap once, not for each event until it is closed
			m.gaps.Inc()
			f.gapAt = last
		}
		f.catchUp("gap")
	}
}

// outdated reports whether the event's node was already read at a later revision.
func (f *follower) outdated(e *events.Event) bool {
	revision, ok := f.ahead[e.Node]
	if ok && e.Revision >= revision {
		delete(f.ahead, e.Node)
	}
	return ok && e.Revision <= revision
}

// catchUp compares because an event could not be applied: now, or when calm is over. Until then the
// revision stands still, so no later event is applied either. It returns true if it compared now.
func (f *follower) catchUp(why string) bool {
	wait := f.calmAt - f.cache.clock.now()
	if wait <= 0 {
		f.awaited = atOnce
		f.compare(why)
		f.calmAt = f.cache.clock.now() + int64(calm)
		return true
	}
	f.hasten(time.Duration(wait))
	return false
}

// apply applies one event. It returns false if the cache does not know the node and the event says
// too little about it.
func (f *follower) apply(e *events.Event) bool {
	known, ok := f.cache.nodes.Load(e.Node)
	switch {
	case e.Kind == events.Offline:
		// An older release does not say why the node left. Redis' clock decides, as when it reaps.
		silent := ok && e.AtMS-known.heartbeatMS.Load() > f.cache.SilenceLimit().Milliseconds()
		f.remove(e.Node, e.Body == events.Reaped || e.Body == "" && silent)
		return true
	case e.Kind == events.Register:
		return f.applyRegister(e)
	case !ok || known.incarnation.Load().epoch != e.Epoch:
		return false
	}
	// SlotFree always calls OnFree: a reservation's answer may have brought the figure already.
	before := e.Kind != events.SlotFree && f.cache.takes(known.node)
	known.node.SetUsed(e.Used)
	known.setStatus(e.Status)
	if e.Kind == events.Heartbeat {
		// Use the event's own time: with ours, a backlog would make a dead node look alive.
		known.node.Seen(f.localNow(e.AtMS))
		known.heartbeatMS.Store(max(e.AtMS, known.heartbeatMS.Load())) // a later, quiet one may be known
		if e.Body != "" {                                              // otherwise the last resources stay in force
			resources := e.Body
			known.resources.Store(&resources)
		}
	}
	known.revision.Store(e.Revision)
	f.mirrorFigures(known, e.Used, e.Status)
	f.cache.freed(known.node, before)
	return true
}

func (f *follower) applyRegister(e *events.Event) bool {
	state := cell.NodeState{
		Epoch: e.Epoch, Status: e.Status, Used: e.Used, Revision: e.Revision,
		RegisteredAtMS: e.AtMS, LastHeartbeatMS: e.AtMS,
	}
	if err := json.Unmarshal([]byte(e.Body), &state.Node); err != nil || state.Node.ID != e.Node {
		return false
	}
	profile.Normalize(&state.Node)
	state.Broken = state.Node.Validate("node")
	profile.Share(&state.Node)
	known, ok := f.cache.nodes.Load(e.Node)
	if ok && known.incarnation.Load().epoch == e.Epoch { // only the profile changed
		state.RegisteredAtMS = known.incarnation.Load().registeredAtMS
		state.Resources = json.RawMessage(*known.resources.Load())
		state.LastHeartbeatMS = max(e.AtMS, known.heartbeatMS.Load())
	} else {
		// Its heartbeats may have been read before this event, when the cache knew no such node or
		// its predecessor.
		f.hearing.sinceMS = min(f.hearing.sinceMS, e.AtMS)
		if e.Revision <= f.escaped {
			f.readAgain(e.Node) // the load missed it, and so perhaps a change of its profile
		}
	}
	f.put(&state)
	return true
}

// put applies the whole state of a node. It removes a node with a profile that an operator broke by
// hand.
func (f *follower) put(state *cell.NodeState) {
	c := f.cache
	if state.Broken != nil {
		f.remove(state.Node.ID, false)
		return
	}
	known, ok := c.nodes.Load(state.Node.ID)
	switch {
	case !ok:
		known = newEntry(state, f.index)
		c.nodes.Store(state.Node.ID, known)
		c.profiles.Add(1)
	case known.node.Cell() != f.index:
		// The writer has another number of cells. cell.Check keeps our own programs from this.
		f.log.Warn("cache.foreign_node", zap.String("node", state.Node.ID), zap.Int("known_in_cell", known.node.Cell()))
		return
	default:
		if !sameProfile(known.node.Profile().Node(), &state.Node) {
			known.node.SetProfile(selection.Compile(&state.Node))
			c.profiles.Add(1)
		}
		known.restate(state)
	}
	known.node.Seen(f.localNow(state.LastHeartbeatMS))
	if c.cfg.Mirror != nil {
		c.cfg.Mirror.Put(state)
	}
	if !ok {
		c.away.back(state.Node.ID) // only now that every list has it, so that no reader finds it nowhere
	}
	f.mirrorFigures(known, state.Used, state.Status)
	// The cache may have missed that the node was full in between.
	c.freed(known.node, false)
}

func (f *follower) mirrorFigures(e *entry, used int, status freeslot.Status) {
	if mirror := f.cache.cfg.Mirror; mirror != nil {
		at, _ := e.node.SeenAt()
		mirror.Heartbeat(e.node.ID(), used, status, at, *e.resources.Load())
	}
}

// gone removes a node that has left only a tombstone. If it was reaped, it had been silent for the
// limit here, too: the cache takes no node for alive that Redis does not.
func (f *follower) gone(state *cell.NodeState) {
	known, ok := f.cache.nodes.Load(state.Node.ID)
	if !ok {
		return
	}
	at, seen := known.node.SeenAt()
	silent := !seen || at < f.cache.clock.now()-int64(f.cache.SilenceLimit())
	f.remove(state.Node.ID, state.Lost || silent)
}

// remove forgets a node. away is true if it may come back.
func (f *follower) remove(id string, away bool) {
	known, ok := f.cache.nodes.Load(id)
	if !ok || known.node.Cell() != f.index {
		return
	}
	if away && !known.node.Draining() {
		f.cache.away.add(known.node, f.cache.clock.now(), f.cache.SilenceLimit()) // first, so that no reader finds it nowhere
		f.cache.lost.add(id, time.Now())
	}
	f.cache.nodes.Delete(id)
	f.cache.profiles.Add(1)
	if f.cache.cfg.Mirror != nil {
		f.cache.cfg.Mirror.Remove(id)
	}
}

// sameProfile compares what an agent states. A test fails if a field is missing here.
func sameProfile(a, b *freeslot.Node) bool {
	return a.ID == b.ID && a.MaxConcurrency == b.MaxConcurrency &&
		slices.Equal(a.Services, b.Services) && slices.Equal(a.Pools, b.Pools) &&
		slices.Equal(a.Languages.ASR, b.Languages.ASR) && slices.Equal(a.Languages.TTS, b.Languages.TTS) &&
		slices.Equal(a.Languages.Semantic, b.Languages.Semantic) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Features, b.Features)
}

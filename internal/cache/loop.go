package cache

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

// calm is the least time from one comparison that an event caused to the next.
// A flood of events that cannot be applied (another wire version, a node whose
// profile is broken, a Redis that refuses the comparison) then costs some tens of
// comparisons a second, not one for each event.
const calm = 50 * time.Millisecond

// follow is what the loop, and nobody else, knows of the counter that it follows.
type follow struct {
	timer *time.Timer // of the next comparison
	dueAt int64       // Now when it fires
	// calmAt is Now from which on an event may cause a comparison again.
	calmAt   int64
	failures int // comparisons that failed since the last that did not

	generation string
	// clockOffset is Now minus Redis' clock, in nanoseconds. It is measured against
	// the monotonic clock, so a step of the local wall clock makes no node look dead
	// or alive.
	clockOffset int64
	// subscribed is true once the subscription stood. suspect is true from a
	// renewed one to the next replacing load: the server may have come back without
	// its last writes and given their revisions to others, which no comparison of
	// revisions can show.
	subscribed, suspect bool
}

// loop is the only writer of the cache. Everything that changes a node comes
// through here one after the other, so that an older state can never overwrite a
// newer one.
func (c *Cache) loop() {
	defer close(c.done)
	var messages <-chan string
	var resets <-chan struct{}
	if c.sub != nil {
		messages, resets = c.sub.Messages(), c.sub.Resets()
	}
	c.follow.timer = time.NewTimer(0)
	defer c.follow.timer.Stop()
	for {
		select {
		case m := <-messages:
			c.receive(m)
		case <-resets:
			c.reset(messages)
		case <-c.follow.timer.C:
			// Jitter keeps replicas that were started together from asking together.
			// First, because a comparison that fails wants an earlier one.
			c.schedule(c.cfg.RefreshInterval*3/4 + rand.N(c.cfg.RefreshInterval/2+1))
			c.resync("interval")
		case answer := <-c.syncs:
			c.answer(answer)
		case <-c.stopping:
			return
		}
	}
}

func (c *Cache) schedule(wait time.Duration) {
	c.follow.dueAt = c.Now() + int64(wait)
	c.follow.timer.Reset(wait)
}

// hasten has the next comparison made after wait at the latest.
func (c *Cache) hasten(wait time.Duration) {
	if c.Now()+int64(wait) < c.follow.dueAt {
		c.schedule(wait)
	}
}

// reset takes in that the subscription stands (again).
func (c *Cache) reset(messages <-chan string) {
	// What was received before the comparison begins is older than what it brings,
	// and may be of a history that the server has lost.
	for range len(messages) {
		<-messages
	}
	c.follow.suspect = c.follow.suspect || c.follow.subscribed
	c.follow.subscribed = true
	c.resync("subscribed")
}

// answer serves everybody who waits in Sync with one comparison.
func (c *Cache) answer(first chan bool) {
	waiting := []chan bool{first}
	for more := true; more; {
		select {
		case next := <-c.syncs:
			waiting = append(waiting, next)
		default:
			more = false
		}
	}
	done := c.resync("asked")
	for _, w := range waiting {
		w <- done
	}
}

func (c *Cache) receive(message string) {
	e, err := events.Decode(message)
	if err != nil {
		c.metrics.badEvents.Inc()
		if c.catchUp("bad event") {
			c.log.Warn("cache.bad_event", zap.Error(err))
		}
		return
	}
	c.metrics.events.WithLabelValues(e.Kind.String()).Inc()
	switch last := c.revision.Load(); {
	case e.Revision <= last:
		// Known already from a resynchronisation. A counter that went back is
		// found by the next comparison.
	case e.Revision == last+1:
		c.metrics.eventDelay.Observe(time.Duration(c.Now() - c.localNow(e.AtMS)).Seconds())
		if c.apply(&e) {
			c.revision.Store(e.Revision)
		} else {
			c.catchUp("unknown node")
		}
	default:
		c.metrics.gaps.Inc()
		c.catchUp("gap")
	}
}

// catchUp compares because an event could not be applied: now, or when calm is
// over. Until then the revision stands still, so that no later event is applied
// either. It reports whether it was now.
func (c *Cache) catchUp(why string) bool {
	wait := c.follow.calmAt - c.Now()
	if wait <= 0 {
		c.resync(why)
		c.follow.calmAt = c.Now() + int64(calm)
		return true
	}
	c.hasten(time.Duration(wait))
	return false
}

// apply takes over one event. It returns false when the event says too little
// about a node that the cache does not know.
func (c *Cache) apply(e *events.Event) bool {
	known, ok := c.nodes.Load(e.Node)
	switch {
	case e.Kind == events.Offline:
		c.remove(e.Node)
		return true
	case e.Kind == events.Register:
		return c.applyRegister(e)
	case !ok || known.incarnation.Load().epoch != e.Epoch:
		return false
	}
	node := known.node.Load()
	node.SetUsed(e.Used)
	node.SetDraining(e.Status != freeslot.StatusOnline)
	if e.Kind == events.Heartbeat {
		// The event's own time, so that a backlog does not make a dead node look alive.
		node.Seen(c.localNow(e.AtMS))
		known.heartbeatMS.Store(e.AtMS)
		known.resources.Store(&e.Body)
	}
	known.revision.Store(e.Revision)
	return true
}

func (c *Cache) applyRegister(e *events.Event) bool {
	state := cell.NodeState{
		Epoch: e.Epoch, Status: e.Status, Used: e.Used, Revision: e.Revision,
		RegisteredAtMS: e.AtMS, LastHeartbeatMS: e.AtMS,
	}
	if err := json.Unmarshal([]byte(e.Body), &state.Node); err != nil || state.Node.ID != e.Node {
		return false
	}
	if known, ok := c.nodes.Load(e.Node); ok {
		if in := known.incarnation.Load(); in.epoch == e.Epoch { // only the profile changed
			state.RegisteredAtMS = in.registeredAtMS
			state.Resources = json.RawMessage(*known.resources.Load())
		}
	}
	c.put(&state)
	return true
}

// put takes over the whole state of a node, which it may change.
func (c *Cache) put(state *cell.NodeState) {
	normalize(&state.Node)
	if state.Broken != nil || !validProfile(&state.Node) {
		c.remove(state.Node.ID)
		return
	}
	known, ok := c.nodes.Load(state.Node.ID)
	if !ok {
		known = newEntry(state)
		c.nodes.Store(state.Node.ID, known)
		c.profiles.Add(1)
	} else {
		if !sameProfile(known.node.Load().Profile().Node(), &state.Node) {
			known.node.Store(known.node.Load().WithProfile(selection.Compile(&state.Node)))
			c.profiles.Add(1)
		}
		known.restate(state)
	}
	known.node.Load().Seen(c.localNow(state.LastHeartbeatMS))
}

func (c *Cache) remove(id string) {
	if _, ok := c.nodes.LoadAndDelete(id); ok {
		c.profiles.Add(1)
	}
}

// normalize removes what distinguishes a profile as its agent stated it, which
// comes with an event, from the same one as Redis has it.
func normalize(n *freeslot.Node) {
	slices.Sort(n.Pools)
	n.Pools = slices.Compact(n.Pools)
	if n.Services == nil {
		n.Services = []freeslot.Service{}
	}
}

// sameProfile compares the JSON forms: profiles are small and change rarely, and
// a field added later cannot be forgotten here.
func sameProfile(a, b *freeslot.Node) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

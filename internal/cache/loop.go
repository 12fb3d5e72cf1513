package cache

import (
	"encoding/json"
	"math/rand/v2"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/events"
	"github.com/freeslot/freeslot/internal/selection"
)

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
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case m := <-messages:
			c.receive(m)
		case <-resets:
			c.resync("subscribed")
		case <-timer.C:
			c.resync("interval")
			// Jitter keeps replicas that were started together from asking together.
			timer.Reset(c.cfg.RefreshInterval*3/4 + rand.N(c.cfg.RefreshInterval/2))
		case answer := <-c.syncs:
			if c.resync("asked") {
				close(answer)
			}
		case <-c.stopping:
			return
		}
	}
}

func (c *Cache) receive(message string) {
	e, err := events.Decode(message)
	if err != nil {
		c.metrics.badEvents.Inc()
		c.log.Warn("cache.bad_event", zap.Error(err))
		c.resync("bad event")
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
			c.resync("unknown node")
		}
	default:
		c.metrics.gaps.Inc()
		c.resync("gap")
	}
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
		if in := known.incarnation.Load(); in.epoch == e.Epoch {
			state.RegisteredAtMS = in.registeredAtMS
		}
	}
	c.put(&state)
	return true
}

// put takes over the whole state of a node.
func (c *Cache) put(state *cell.NodeState) {
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

// sameProfile compares the JSON forms: profiles are small and change rarely, and
// a field added later cannot be forgotten here.
func sameProfile(a, b *freeslot.Node) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

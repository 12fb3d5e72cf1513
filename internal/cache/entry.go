package cache

import (
	"encoding/json"
	"sync/atomic"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
)

// entry is one node of the cache. Only the follower of its cell writes it.
type entry struct {
	// node holds the profile and the figures that a choice reads.
	node *selection.Node
	// incarnation changes when an agent registers.
	incarnation atomic.Pointer[incarnation]
	revision    atomic.Uint64
	heartbeatMS atomic.Int64
	// drained is true while an operator keeps the node drained.
	drained   atomic.Bool
	drains    bool // Redis' last word on node.Draining, which a refusal may contradict
	resources atomic.Pointer[string]
}

type incarnation struct {
	epoch          cell.Epoch
	registeredAtMS int64
}

func newEntry(state *cell.NodeState, index int) *entry {
	e := &entry{node: selection.NewNode(selection.Compile(&state.Node), index)}
	e.restate(state)
	return e
}

// restate applies everything except the profile.
func (e *entry) restate(state *cell.NodeState) {
	if in := e.incarnation.Load(); in == nil || in.epoch != state.Epoch || in.registeredAtMS != state.RegisteredAtMS {
		e.incarnation.Store(&incarnation{epoch: state.Epoch, registeredAtMS: state.RegisteredAtMS})
	}
	e.revision.Store(state.Revision)
	e.heartbeatMS.Store(state.LastHeartbeatMS)
	resources := string(state.Resources)
	e.resources.Store(&resources)
	e.node.SetUsed(state.Used)
	e.setStatus(state.Status)
}

func (e *entry) setStatus(s freeslot.Status) {
	e.drained.Store(s == freeslot.StatusDrained)
	e.drains = s != freeslot.StatusOnline
	e.node.SetDraining(e.drains)
}

func (e *entry) status() freeslot.Status {
	switch {
	case e.drained.Load():
		return freeslot.StatusDrained
	case e.node.Draining():
		return freeslot.StatusDraining
	}
	return freeslot.StatusOnline
}

// state returns the entry as one value, for listings.
func (e *entry) state() cell.NodeState {
	node, in := e.node, e.incarnation.Load()
	used, _ := node.Load()
	s := cell.NodeState{
		Node: *node.Profile().Node(), Epoch: in.epoch, Status: e.status(), Used: used,
		Revision: e.revision.Load(), RegisteredAtMS: in.registeredAtMS, LastHeartbeatMS: e.heartbeatMS.Load(),
	}
	// The agent wrote the resources of an event. Invalid JSON would break a listing of the whole
	// fleet.
	if r := e.resources.Load(); r != nil && json.Valid([]byte(*r)) {
		s.Resources = json.RawMessage(*r)
	}
	return s
}

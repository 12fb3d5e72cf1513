package gateway

import (
	"sync/atomic"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/socket"
)

// Bounds for the tokens of one name, so that they cannot lock out the agents of others.
const (
	// pendingOfOwner is the number of connections without a hello that each owner may have. It may
	// have more while less than half of maxPending is taken.
	pendingOfOwner = 8
	// bulkOfOwner bounds its requests of bulk.go.
	bulkOfOwner = maxBulk / 2
	// bytesOfOwner bounds what its requests under way hold. A session may have one in any case.
	bytesOfOwner = 64 << 20
	// sessionsOfNode is the number of its sessions for one node: an agent that moves has two.
	sessionsOfNode = 2
)

// owner counts what the tokens of one name hold. It exists while users is not 0.
type owner struct {
	name string
	// The handler's mu guards the following. users counts handshakes, sessions and requests of
	// bulk.go.
	users int
	// pending counts its connections whose agents have not said hello, waiting those in the line
	// before that, agents its sessions among the handler's agents, and bulking its requests of
	// bulk.go.
	pending, waiting, agents, bulking int

	bytes atomic.Int64 // that the requests of its sessions hold
}

// use returns the owner with this name; each call needs one of leave.
func (h *Handler) use(name string) *owner {
	h.mu.Lock()
	defer h.mu.Unlock()
	o := h.owners[name]
	if o == nil {
		o = &owner{name: name}
		h.owners[name] = o
	}
	o.users++
	return o
}

func (h *Handler) leave(o *owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if o.users--; o.users == 0 {
		delete(h.owners, o.name)
	}
}

// has reports whether a request of this size may begin. Sessions that ask at the same time may
// exceed the bound by one request each.
func (o *owner) has(size int) bool { return o.bytes.Load()+int64(size) <= bytesOfOwner }

// makeRoom ends a session in a full replica, if an owner has more than twice as many places as o
// would have then. Otherwise one token could hold all places, by nodes that it invents.
// The caller holds mu.
func (h *Handler) makeRoom(o *owner) {
	most := o
	for _, other := range h.owners {
		if other.agents > most.agents {
			most = other
		}
	}
	if most.agents <= 2*(o.agents+1) {
		return
	}
	var newest *session
	for _, s := range h.live {
		if s.owner == most && s.admitted && (newest == nil || s.opened.After(newest.opened)) {
			newest = s
		}
	}
	if newest != nil {
		by := awayOrder("the gateway is full, and the token " + most.name + " has more than its share")
		by.Label = closedCrowded
		h.dismiss(newest, *by)
	}
}

// dismiss ends a session and gives its place away at once. The caller holds mu.
func (h *Handler) dismiss(s *session, by socket.Order) {
	s.admitted = false
	h.agents--
	s.owner.agents--
	s.End(by)
	ending := 0
	for _, other := range h.nodes[s.node] {
		if other.owner == s.owner && !other.admitted {
			ending++
		}
	}
	if ending > sessionsOfNode {
		// Each end may take closeTimeout, and an agent that does not read could collect them.
		h.running.Go(s.Cut)
	}
}

// formers returns the live sessions of the same node and owner that s may replace, the oldest
// first, and the number of all. The caller holds mu.
func (h *Handler) formers(s *session) (older []*session, all int) {
	for _, former := range h.nodes[s.node] {
		if former.owner != s.owner || !former.admitted || former.conn.Ended() != nil {
			continue
		}
		all++
		if former.epoch != s.epoch || former.connection < s.connection {
			older = append(older, former)
		}
	}
	return older, all
}

// replacedOrder is the order for a session whose place a newer one of the same node takes.
func replacedOrder() socket.Order {
	return socket.Order{
		Code: frame.CloseReplaced, Text: "a newer connection of the agent takes its place", Label: closedReplaced,
		Flush: true,
	}
}

package cell

import (
	"context"
	"errors"
	"time"

	"github.com/freeslot/freeslot"
)

var (
	// ErrStaleConnection is returned to a gateway when a later connection of the same epoch has
	// registered the node or sent a heartbeat. Nothing was changed.
	ErrStaleConnection = errors.New("a newer connection of the agent is there")
	// ErrNodeInUse is returned to a gateway when the node lives under another token, or as a direct
	// agent. Nothing was changed.
	ErrNodeInUse = errors.New("the node lives under another token")
)

// Link is how a node is connected through a gateway: what stands in load:<node> behind the time. The
// zero value is that of an agent which is connected to Redis itself.
type Link struct {
	// Connection counts the connections of one epoch, from 1.
	Connection int64
	// Stream is where deliveries go: "-" is the node's dispatch stream.
	Stream string
	// Session, Token (its name), Replica and Version (the agent's) are of the gateway's session.
	Session, Token, Replica, Version string
	// RoundTrip is between gateway and agent, in whole microseconds; 0 is not measured.
	RoundTrip time.Duration
}

// NodeLink is what Redis knows of a node's connection.
type NodeLink struct {
	Epoch Epoch // "" where there is no record
	Link  Link
	Alive bool // it was heard within the heartbeat limit
}

// Link reads how a node is connected. Errors: *freeslot.Error (invalid_argument), else those of Redis.
func (c *Cell) Link(ctx context.Context, node string) (NodeLink, error) { panic("todo") }

// Links reads how nodes are connected. Those whose cells do not answer, and those that are not
// connected by a gateway, are left out.
func (s *Set) Links(ctx context.Context, nodes []string) map[string]Link { panic("todo") }

// RegisterLinked is Register for a node behind a gateway. It takes over no other epoch than replaces.
// Errors: as Register; ErrSuperseded for a record of another epoch; ErrStaleConnection; ErrNodeInUse.
func (c *Cell) RegisterLinked(ctx context.Context, node freeslot.Node, epoch Epoch, link Link, replaces Epoch) (Registration, error) {
	panic("todo")
}

// HeartbeatLinked is Heartbeat for a node behind a gateway. Errors: as Heartbeat; ErrStaleConnection.
func (c *Cell) HeartbeatLinked(ctx context.Context, hb Heartbeat, link Link) (HeartbeatReply, error) {
	panic("todo")
}

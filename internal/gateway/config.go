package gateway

import (
	"fmt"
	"time"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/socket"
)

// Bounds in addition to those that package frame tells agents.
const (
	// maxPending bounds the connections whose agents have not said hello.
	maxPending = 256
	// maxRequestBytes bounds the requests under way in a session.
	maxRequestBytes = 4 << 20
	// maxBeats is the number of heartbeats that may wait in a session before it stops reading.
	maxBeats = 8
	// maxVersion is the longest version of an agent, in bytes.
	maxVersion = 64
	// queueMessages and queueBytes bound what waits for an agent to read it.
	queueMessages = 1024
	queueBytes    = 4 << 20
	// jobBytes is how much must wait before pushed jobs are held back. At bareBytes, begun jobs go
	// without their specs, which the agent asks for as its line allows. The answer to a heartbeat
	// may wait behind that much: a second at 1 Mbit/s. 64 ends of one frame begin jobs at once, which
	// have 1 KiB each that way.
	jobBytes  = 32 << 10
	bareBytes = 128 << 10
	// unsentBytes is how much the kernel accepts before it can send it. The answer to a heartbeat
	// would wait behind more.
	unsentBytes = 16 << 10
	// arrayBytes is about the largest frame of several messages: large enough to spare calls, small
	// enough that an agent soon has the first message. That may be the answer to a heartbeat.
	arrayBytes = 16 << 10

	helloTimeout = 5 * time.Second
	pingTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	// closeTimeout bounds the end of a session, including the delivery of the queue.
	closeTimeout = 5 * time.Second
	// drainPause is the longest pause between two agents that are asked to go elsewhere.
	drainPause = 100 * time.Millisecond
	// callTimeout bounds a call to the cell, except complete, which the cell bounds by its size.
	callTimeout = time.Second
	// shortestBeat and callTimeout are the bounds of beatTimeout's result.
	shortestBeat = 50 * time.Millisecond
	beatParts    = 16
)

// DefaultPingInterval is how often an agent is pinged unless configured otherwise.
const DefaultPingInterval = 20 * time.Second

// Config describes the gateway of a replica.
type Config struct {
	// Replica and Version are part of the welcome. Replica is also part of a node's link.
	Replica, Version string
	// HeartbeatLimit is the silence after which replicas take a node for dead.
	HeartbeatLimit time.Duration
	// MaxAgents is the largest number of sessions at a time. Further ones are refused.
	MaxAgents int
	// PingInterval is how often each agent is pinged. 0 means DefaultPingInterval.
	PingInterval time.Duration
	// Cells returns a node's cell.
	Cells  func(node string) Cell
	Tokens *Tokens
}

func (c *Config) validate() error {
	switch {
	case c.MaxAgents < 1:
		return fmt.Errorf("max_agents is %d, expected at least 1", c.MaxAgents)
	case c.PingInterval < pingShares:
		return fmt.Errorf("ping_interval is %s, expected more", c.PingInterval)
	case c.HeartbeatLimit <= 0:
		return fmt.Errorf("heartbeat_limit is %s, expected more than 0s", c.HeartbeatLimit)
	}
	return nil
}

// beatTimeout returns the bound of a heartbeat. An agent that has had no answer for an eighth of
// the limit tries another gateway. Before that, it must learn that this gateway lives and Redis
// does not answer.
func (c *Config) beatTimeout() time.Duration {
	return min(max(c.HeartbeatLimit/beatParts, shortestBeat), callTimeout)
}

func socketConfig(m *metrics) socket.Config {
	return socket.Config{
		Protocol: frame.Protocol, MaxFrameBytes: frame.MaxFrameBytes,
		QueueMessages: queueMessages, QueueBytes: queueBytes, UnsentBytes: unsentBytes,
		PingTimeout: pingTimeout, WriteTimeout: writeTimeout, CloseTimeout: closeTimeout,
		Slow:   socket.Order{Code: frame.CloseSlow, Text: "the agent does not read fast enough", Label: closedSlow},
		Closed: closedByAgent, Lost: closedLost,
		FramesIn: m.framesIn, FramesOut: m.framesOut, BytesIn: m.bytesIn, BytesOut: m.bytesOut,
	}
}

package gateway

import (
	"fmt"
	"time"
)

// Bounds beside those that package frame names to agents.
const (
	// maxPending bounds the connections whose agents have not said hello.
	maxPending = 256
	// maxRequestBytes bounds the requests of a session that are under way.
	maxRequestBytes = 4 << 20
	// maxBeats is how many heartbeats of a session wait before it reads no further.
	maxBeats = 8
	// maxVersion is the longest version of an agent, in bytes.
	maxVersion = 64
	// queueMessages and queueBytes bound what waits for an agent to read it.
	queueMessages = 1024
	queueBytes    = 4 << 20
	// jobBytes is how much waits when pushed jobs are held back, and bareBytes when begun ones go without
	// their specs, which the agent asks for as its line allows. The answer to a heartbeat may wait behind
	// so much: half a second at 1 Mbit/s.
	jobBytes  = 32 << 10
	bareBytes = 64 << 10

	helloTimeout = 5 * time.Second
	pingTimeout  = 10 * time.Second
	writeTimeout = 10 * time.Second
	// closeTimeout bounds the end of a session, including the delivery of the queue.
	closeTimeout = 5 * time.Second
	// drainPause is the longest pause between two agents that are asked to go elsewhere.
	drainPause = 100 * time.Millisecond
	// callTimeout bounds a call of the cell but for complete, which the cell bounds by its size.
	callTimeout = time.Second
	// shortestBeat and callTimeout bound what beatTimeout makes of the heartbeat limit.
	shortestBeat = 50 * time.Millisecond
	beatParts    = 16
)

// DefaultPingInterval is how often an agent is pinged unless configured.
const DefaultPingInterval = 20 * time.Second

// Config describes the gateway of a replica.
type Config struct {
	// Replica and Version are part of the welcome, and Replica of a node's link.
	Replica, Version string
	// HeartbeatLimit is the silence after which replicas take a node for dead.
	HeartbeatLimit time.Duration
	// MaxAgents is the most sessions at a time. More are refused.
	MaxAgents int
	// PingInterval is how often each agent is pinged. 0 means DefaultPingInterval.
	PingInterval time.Duration
	// Cells is the cell of a node.
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

// beatTimeout bounds a heartbeat. An agent that has no answer for an eighth of the limit tries another
// gateway, so it must know before that this one lives and Redis does not answer.
func (c *Config) beatTimeout() time.Duration {
	return min(max(c.HeartbeatLimit/beatParts, shortestBeat), callTimeout)
}

package client

import (
	"time"

	"github.com/redis/rueidis"
)

const (
	// gatewaySpare is room for reads that begin before those of sessions that ended have returned.
	gatewaySpare = 16
	// gatewayIdle is how long a connection stays after the session whose reads it carried.
	gatewayIdle = time.Minute
)

// Gateway is the role by which a replica speaks for its agents. Each session has a blocking read of
// its own, so there is room for all: an exhausted pool would let reads wait without a word. The
// buffers are an agent's.
func Gateway(maxAgents int) Role {
	return func(c Config) (rueidis.Client, error) {
		return c.open(func(opt *rueidis.ClientOption) {
			forReplica(opt)
			opt.BlockingPoolSize, opt.BlockingPoolCleanup = maxAgents+gatewaySpare, gatewayIdle
			opt.ReadBufferEachConn, opt.WriteBufferEachConn = agentBuffer, agentBuffer
			opt.RingScaleEachConn = agentRing
		})
	}
}

package main

import (
	"context"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// stampedClient has Redis say the time right after each script: sent together, the two are run one after the
// other. That is when the script's changes were there for others to see. It is for one call at a time.
type stampedClient struct {
	rueidis.Client
	atNS atomic.Int64
}

// Do implements rueidis.Client.
func (s *stampedClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if name := cmd.Commands()[0]; name != "EVALSHA" && name != "EVAL" {
		return s.Client.Do(ctx, cmd)
	}
	results := s.DoMulti(ctx, cmd, s.B().Time().Build())
	if clock, err := results[1].AsIntSlice(); err == nil && len(clock) == 2 {
		s.atNS.Store(clock[0]*1e9 + clock[1]*1e3)
	} else {
		s.atNS.Store(0)
	}
	return results[0]
}

package gateway

import (
	"context"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
)

const (
	// beatWait is how long a heartbeat that no one waits for may wait to share a call.
	beatWait = 50 * time.Millisecond
	// nodesTogether is the largest number of nodes in a call. That many requests end a wait, and
	// may go beside another call.
	nodesTogether = 32
	// callsAtOnce is the number of calls of a kind that may be under way. One after the other,
	// calls of 20 ms would not suffice for 5,000 agents: their heartbeats would be late, and all
	// would look for another gateway. Calls for heartbeats have a connection each.
	callsAtOnce = 3
)

// shared is what the sessions of one cell have in common.
type shared struct {
	beats gather[cell.LinkedHeartbeat, cell.HeartbeatResult]
	ends  gather[cell.Completion, cell.SharedOutcome]
}

func newShared(h *Handler, c Cell) *shared {
	sh := &shared{}
	sh.beats.fit, sh.ends.fit = cell.FitHeartbeats, cell.FitNodes
	sh.beats.full, sh.ends.full = nodesTogether, nodesTogether
	sh.beats.more, sh.ends.more = callsAtOnce-1, callsAtOnce-1
	sh.beats.wait = min(beatWait, h.cfg.beatTimeout()/2)
	sh.beats.call = func(beats []cell.LinkedHeartbeat) ([]cell.HeartbeatResult, error) {
		// This leaves the first heartbeat time for its wait, so that it too has its answer in time.
		ctx, cancel := context.WithTimeout(h.calls, h.cfg.beatTimeout()-sh.beats.wait)
		defer cancel()
		h.metrics.together.WithLabelValues("heartbeats").Observe(float64(len(beats)))
		return c.HeartbeatsLinked(ctx, beats), nil
	}
	sh.ends.call = func(comps []cell.Completion) ([]cell.SharedOutcome, error) {
		ctx, cancel := context.WithTimeout(h.calls, endsTimeout(comps))
		defer cancel()
		h.metrics.together.WithLabelValues("complete_nodes").Observe(float64(len(comps)))
		return c.CompleteNodes(ctx, comps)
	}
	return sh
}

// shareBeat sends a heartbeat in a call that it shares with other nodes' heartbeats.
func (s *session) shareBeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
	result, err := s.hub.shared.beats.do(ctx, cell.LinkedHeartbeat{Heartbeat: hb, Link: s.link()}, hb.Now)
	if err == nil {
		err = result.Err
	}
	return result.HeartbeatReply, err
}

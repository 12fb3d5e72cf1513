package gateway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// endWait bounds how long a request waits for a place in a call of several nodes, and for that
// call. An agent gives up after that time and repeats the request.
const endWait = 2 * callTimeout

// slowestConnection is the lowest rate of a connection to Redis, in bytes a second.
const slowestConnection = 1 << 20

// endsTimeout bounds a call. A larger call gets more time; otherwise it would be repeated and fail
// again.
func endsTimeout(comps []cell.Completion) time.Duration {
	bytes := 0
	for i := range comps {
		bytes += len(comps[i].Result)
	}
	return callTimeout + time.Duration(bytes)*time.Second/slowestConnection
}

// ends ends the attempts of one session's node.
type ends struct {
	// alone is true if calls shared by several nodes do not work for this node, such as while jobs
	// wait that it could begin. Its ends then share calls only with each other.
	alone  atomic.Bool
	gather gather[cell.Completion, cell.CompletionResult]
}

func (s *session) initEnds() {
	s.ends.gather.fit = cell.FitNode
	s.ends.gather.call = s.endAlone
}

// finish ends an attempt: in a call shared with other nodes or, failing that, in a call for the
// node alone.
func (s *session) finish(comp cell.Completion) (cell.CompletionOutcome, error) {
	failed := false
	if comp.Plain() && !s.ends.alone.Load() {
		ctx, cancel := context.WithTimeout(s.handler.calls, endWait)
		outcome, err := s.hub.shared.ends.do(ctx, comp, false)
		cancel()
		if err != nil {
			return "", fmt.Errorf("complete job %s in a call of several nodes: %w", comp.Attempt.Job, err)
		}
		if outcome == cell.SharedCompleted {
			return cell.Completed, nil
		}
		failed = !s.ends.alone.Swap(true) && outcome == cell.SharedUnknown
	}
	result, err := s.ends.gather.do(s.handler.calls, comp, false)
	if failed {
		// The call may have left anything behind. The heartbeat mends it.
		s.send(&frame.Answer{Type: frame.TypeSync})
	}
	if err == nil {
		err = result.Err
	}
	return result.Outcome, err
}

// endAlone makes one call for the node.
func (s *session) endAlone(comps []cell.Completion) ([]cell.CompletionResult, error) {
	ctx, cancel := context.WithTimeout(s.handler.calls, endsTimeout(comps))
	defer cancel()
	s.handler.metrics.together.WithLabelValues("complete").Observe(float64(len(comps)))
	began := false
	for i := range comps {
		take := comps[i].Begun
		comps[i].Begun = func(begun []cell.Dispatch) {
			began = true
			take(begun)
		}
	}
	results := s.cell.CompleteNode(ctx, comps)
	s.ends.alone.Store(began) // while nothing begins, others may share the call
	return results, nil
}

package gateway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// slowestConnection is the bytes a second that a connection to Redis must carry.
const slowestConnection = 1 << 20

// endsTimeout bounds a call: a larger one gets more time, else it would be repeated and fail again.
func endsTimeout(comps []cell.Completion) time.Duration {
	bytes := 0
	for i := range comps {
		bytes += len(comps[i].Result)
	}
	return callTimeout + time.Duration(bytes)*time.Second/slowestConnection
}

// ends ends attempts of one session's node.
type ends struct {
	// alone: calls that nodes share do not do for this node, as while jobs wait that it could begin. So
	// its ends share calls with each other only.
	alone  atomic.Bool
	gather gather[cell.Completion, cell.CompletionResult]
}

func (s *session) initEnds() {
	s.ends.gather.fit = cell.FitNode
	s.ends.gather.call = s.endAlone
}

// finish ends an attempt: in a call with those of other nodes, or else in one of the node alone.
func (s *session) finish(comp cell.Completion) (cell.CompletionOutcome, error) {
	failed := false
	if comp.Plain() && !s.ends.alone.Load() {
		outcome, err := s.hub.shared.ends.do(s.handler.calls, comp, false)
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
		// Nobody knows what the call has left behind. The heartbeat mends it.
		s.send(&frame.Answer{Type: frame.TypeSync})
	}
	if err == nil {
		err = result.Err
	}
	return result.Outcome, err
}

// endAlone is one call for the node.
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

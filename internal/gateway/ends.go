package gateway

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/freeslot/freeslot"
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
	gather gather[*ending, cell.CompletionResult]
}

// ending is a complete message under way.
type ending struct {
	session *session
	request
	cell.Completion
	begun []cell.Dispatch
	// failed is true if a shared call may have left anything behind.
	failed bool
}

func (s *session) initEnds() {
	s.ends.gather.fit = func(in []*ending) int { return cell.FitNode(completions(in)) }
	s.ends.gather.call = s.endAlone
	s.ends.gather.done = aloneDone
}

// complete begins to end the attempts of one frame: in a call shared with other nodes or, failing
// that, in a call for the node alone.
func (s *session) complete(taken []request) {
	var plain, alone []*ending
	now := time.Now()
	for _, req := range taken {
		e, err := s.ending(req)
		switch {
		case err != nil:
			s.free(req)
			s.answer(req, nil, err)
		case e.Plain() && !s.ends.alone.Load():
			plain = append(plain, e)
		default:
			alone = append(alone, e)
		}
	}
	s.requests.Add(len(plain) + len(alone))
	if len(plain) > 0 {
		s.hub.shared.ends.add(now, false, plain...)
	}
	if len(alone) > 0 {
		s.ends.gather.add(now, false, alone...)
	}
}

func (s *session) ending(req request) (*ending, error) {
	if err := s.checkForeign(); err != nil {
		return nil, err
	}
	if len(req.Result) > frame.InlineBytes {
		return nil, &freeslot.Error{
			Code: freeslot.CodePayloadTooLarge, Field: "result",
			Message: fmt.Sprintf(
				"result has %d bytes, expected at most %d in a frame: send it by HTTP", len(req.Result), frame.InlineBytes,
			),
		}
	}
	comp, err := completion(s.node, s.epoch, req.Request)
	return &ending{session: s, request: req, Completion: comp}, err
}

func completions(in []*ending) []cell.Completion {
	out := make([]cell.Completion, len(in))
	for i := range in {
		out[i] = in[i].Completion
	}
	return out
}

// sharedDone answers the ends of a call for several nodes. What the call has not ended goes alone.
func sharedDone(in []*ending, out []cell.SharedOutcome, err error) {
	eachSession(in, func(s *session, from, to int) {
		var alone []*ending
		for i := from; i < to; i++ {
			e := in[i]
			switch {
			case err != nil:
				e.answer("", fmt.Errorf("complete job %s in a call of several nodes: %w", e.Attempt.Job, err))
			case out[i] == cell.SharedCompleted:
				e.answer(cell.Completed, nil)
			default:
				e.failed = !s.ends.alone.Swap(true) && out[i] == cell.SharedUnknown
				alone = append(alone, e)
			}
		}
		if len(alone) > 0 {
			s.ends.gather.add(time.Now(), false, alone...)
		}
	})
}

// endAlone makes one call for the node.
func (s *session) endAlone(in []*ending) ([]cell.CompletionResult, error) {
	comps, began := completions(in), false
	for i := range comps {
		comps[i].Begun = func(begun []cell.Dispatch) {
			began = true
			in[i].begun = append(in[i].begun, begun...)
		}
	}
	ctx, cancel := context.WithTimeout(s.handler.calls, endsTimeout(comps))
	defer cancel()
	s.handler.metrics.together.WithLabelValues("complete").Observe(float64(len(comps)))
	results := s.cell.CompleteNode(ctx, comps)
	s.ends.alone.Store(began) // while nothing begins, others may share the call
	return results, nil
}

// aloneDone answers the ends of a call for one node.
func aloneDone(in []*ending, out []cell.CompletionResult, _ error) {
	eachSession(in, func(s *session, from, to int) {
		for i := from; i < to; i++ {
			if in[i].failed {
				// The call may have left anything behind. The heartbeat mends it.
				s.send(&frame.Answer{Type: frame.TypeSync})
			}
			in[i].answer(out[i].Outcome, out[i].Err)
		}
	})
}

// eachSession calls answer for the ends of each session. Their answers leave in one frame.
func eachSession(in []*ending, answer func(s *session, from, to int)) {
	for from, to := 0, 1; from < len(in); to++ {
		if s := in[from].session; to == len(in) || in[to].session != s {
			s.conn.Together(func() { answer(s, from, to) })
			from = to
		}
	}
}

func (e *ending) answer(outcome cell.CompletionOutcome, err error) {
	s := e.session
	var answer *frame.Answer
	if err == nil {
		answer = s.handler.completed(outcome, e.begun)
	}
	s.free(e.request) // before the answer: the agent may send the next request as soon as it has it
	s.answer(e.request, answer, err)
	s.requests.Done()
}

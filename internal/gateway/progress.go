package gateway

import (
	"context"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// progress carries out the progress messages of one frame, in as few calls as the cell allows.
func (s *session) progress(all []request) {
	for len(all) > 0 {
		n := fitProgress(all)
		s.tell(all[:n])
		all = all[n:]
	}
}

// fitProgress returns how many messages, counted from the first, share a call, which takes one
// report of each attempt.
func fitProgress(all []request) int {
	told, n := map[frame.Attempt]bool{}, 0
	for _, req := range all {
		if n > 0 && (len(req.Reports) == 0 || len(told)+len(req.Reports) > cell.MaxProgressItems) {
			return n
		}
		for i := range req.Reports {
			if told[req.Reports[i].Attempt] && n > 0 {
				return n
			}
			told[req.Reports[i].Attempt] = true
		}
		if n++; len(req.Reports) == 0 {
			return n // it is refused
		}
	}
	return n
}

// tell makes one call for several messages. If it refuses them, each has a call of its own, which
// tells the wrong one.
func (s *session) tell(together []request) {
	outcomes, err := s.reported(together)
	if len(together) > 1 && freeslot.CodeOf(err) == freeslot.CodeInvalidArgument {
		for i := range together {
			s.tell(together[i : i+1])
		}
		return
	}
	s.conn.Together(func() {
		for _, req := range together {
			s.free(req) // before the answer: the agent may send the next request as soon as it has it
			if err != nil {
				s.answer(req, nil, err)
				continue
			}
			n := len(req.Reports)
			s.answer(req, &frame.Answer{Type: frame.TypeProgressed, Outcomes: outcomes[:n:n]}, nil)
			outcomes = outcomes[n:]
		}
	})
}

func (s *session) reported(together []request) ([]string, error) {
	if err := s.checkForeign(); err != nil {
		return nil, err
	}
	var reports []cell.ProgressReport
	for _, req := range together {
		for i := range req.Reports {
			r := &req.Reports[i]
			reports = append(reports, cell.ProgressReport{Attempt: cell.Attempt(r.Attempt), Seq: r.Seq, Value: r.Value})
		}
	}
	ctx, cancel := context.WithTimeout(s.handler.calls, callTimeout)
	defer cancel()
	found, err := s.cell.Progress(ctx, s.node, s.epoch, reports)
	if err != nil {
		return nil, err
	}
	outcomes := make([]string, len(found))
	for i, outcome := range found {
		switch outcome {
		case cell.ProgressTaken:
			outcomes[i] = frame.OutcomeTaken
		case cell.ProgressCancel:
			outcomes[i] = frame.OutcomeCancel
		case cell.ProgressStale:
			outcomes[i] = frame.OutcomeStale
			s.handler.metrics.stale.WithLabelValues(string(frame.TypeProgress)).Inc()
		}
	}
	return outcomes, nil
}

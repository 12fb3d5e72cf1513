package gateway

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
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
	beats gather[*beat, cell.HeartbeatResult]
	ends  gather[*ending, cell.SharedOutcome]
}

func newShared(h *Handler, c Cell) *shared {
	sh := &shared{}
	sh.beats.full, sh.ends.full = nodesTogether, nodesTogether
	sh.beats.more, sh.ends.more = callsAtOnce-1, callsAtOnce-1
	sh.beats.wait, sh.beats.patience = min(beatWait, h.cfg.beatTimeout()/2), h.cfg.beatTimeout()
	sh.beats.fit = func(in []*beat) int { return cell.FitHeartbeats(linked(in)) }
	sh.beats.call = func(in []*beat) ([]cell.HeartbeatResult, error) {
		// This leaves the first heartbeat time for its wait, so that it too has its answer in time.
		ctx, cancel := context.WithTimeout(h.calls, h.cfg.beatTimeout()-sh.beats.wait)
		defer cancel()
		h.metrics.together.WithLabelValues("heartbeats").Observe(float64(len(in)))
		return c.HeartbeatsLinked(ctx, linked(in)), nil
	}
	sh.beats.done = beatsDone
	sh.ends.patience = endWait
	sh.ends.fit = func(in []*ending) int { return cell.FitNodes(completions(in)) }
	sh.ends.call = func(in []*ending) ([]cell.SharedOutcome, error) {
		comps := completions(in)
		ctx, cancel := context.WithTimeout(h.calls, endsTimeout(comps))
		defer cancel()
		h.metrics.together.WithLabelValues("complete_nodes").Observe(float64(len(comps)))
		return c.CompleteNodes(ctx, comps)
	}
	sh.ends.done = sharedDone
	return sh
}

// beat is a heartbeat under way.
type beat struct {
	session *session
	request
	begin time.Time
	hb    cell.LinkedHeartbeat
}

func linked(in []*beat) []cell.LinkedHeartbeat {
	out := make([]cell.LinkedHeartbeat, len(in))
	for i := range in {
		out[i] = in[i].hb
	}
	return out
}

// heartbeat begins a heartbeat, or has it wait for the one under way. One goes after the other, so
// that the last answer also belongs to the last heartbeat that Redis carried out.
func (s *session) heartbeat(req request) {
	resources := req.Resources
	if string(resources) == "null" {
		resources = nil
	}
	var err error
	switch {
	case len(req.Running) > frame.MaxAttempts:
		err = freeslot.Invalid("running", "has %d entries, expected at most %d", len(req.Running), frame.MaxAttempts)
	case len(resources) > 0 && resources[0] != '{':
		err = freeslot.Invalid("resources", "is no object, expected one")
	}
	if err != nil {
		s.free(req)
		s.answer(req, nil, err)
		return
	}
	s.requests.Add(1)
	b := &beat{session: s, request: req, begin: time.Now()}
	b.hb.Heartbeat = cell.Heartbeat{
		Node: s.node, Epoch: s.epoch, Status: req.Status, Resources: resources, Running: attempts[cell.Attempt](req.Running),
		Now: req.Now,
	}
	s.mu.Lock()
	s.turns = append(s.turns, b)
	first := len(s.turns) == 1
	s.mu.Unlock()
	switch {
	case first:
		s.shareBeat(b)
	case req.Now:
		s.hub.shared.beats.hurry() // the turn may be held by a heartbeat that waits for others
	}
}

// shareBeat sends a heartbeat in a call that it shares with other nodes' heartbeats.
func (s *session) shareBeat(b *beat) {
	b.hb.Link = s.link()
	s.hub.shared.beats.add(b.begin, b.hb.Now, b)
}

// beatsDone answers heartbeats. Each is followed by the next one of its session.
func beatsDone(in []*beat, out []cell.HeartbeatResult, err error) {
	for i, b := range in {
		var result cell.HeartbeatResult
		if err == nil {
			result = out[i]
		} else {
			result.Err = fmt.Errorf("heartbeat of node %s: %w", b.session.node, err)
		}
		b.answer(result)
		if next := b.session.nextTurn(); next != nil {
			next.session.shareBeat(next)
		}
		b.session.requests.Done()
	}
}

// nextTurn ends the turn of the heartbeat that was answered. It returns the one that is next.
func (s *session) nextTurn() *beat {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turns = slices.Delete(s.turns, 0, 1); len(s.turns) > 0 {
		return s.turns[0]
	}
	return nil
}

func (b *beat) answer(result cell.HeartbeatResult) {
	s, err := b.session, result.Err
	s.noteForeign(err)
	s.free(b.request)
	if err != nil {
		s.answer(b.request, nil, err)
		return
	}
	s.answerBeat(&frame.Answer{
		Type: frame.TypeBeat, ID: b.ID,
		Start: attempts[frame.Attempt](result.Start), Stop: attempts[frame.Attempt](result.Stop),
		Cancel: attempts[frame.Attempt](result.Cancel),
	}, result.AtMS)
	s.answer(b.request, nil, nil)
}

// attempts converts between the types of attempts.
func attempts[To, From frame.Attempt | cell.Attempt](from []From) []To {
	out := make([]To, len(from))
	for i := range from {
		out[i] = To(from[i])
	}
	return out
}

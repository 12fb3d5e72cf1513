package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/socket"
)

// profilesTogether is the number of nodes whose profiles are read in one call.
const profilesTogether = 100

// checkRights ends the sessions whose tokens were removed, have expired, or are no longer for their
// nodes.
func (h *Handler) checkRights() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.live {
		s.checkRights()
	}
}

func (s *session) checkRights() {
	if s.handler.cfg.Tokens.Holds(s.token.Digest, s.node, s.certificate) {
		return
	}
	s.endRights(&freeslot.Error{
		Code: freeslot.CodePermissionDenied,
		Message: fmt.Sprintf(
			"token %s was removed, has expired, or is no longer for node %s and its certificate", s.token.Name, s.node,
		),
	})
}

// endRights ends a session that its token no longer allows.
func (s *session) endRights(err *freeslot.Error) {
	s.sendError(0, err)
	s.End(*rightsOrder(err.Message))
}

// unchecked returns the line of the session's token if its limits were not compared with the node's
// profile yet, and nil otherwise.
func (s *session) unchecked() *Token {
	line, ok := s.handler.cfg.Tokens.Get(s.token.Digest)
	if !ok || !line.limited() {
		return nil
	}
	if checked := s.checked.Load(); checked != nil && checked.sameLimits(&line) {
		return nil
	}
	return &line
}

// checkProfiles ends the sessions whose nodes have registered what their tokens no longer allow. It
// does not wait for Redis. A look that finds no answer is repeated by the next one.
func (h *Handler) checkProfiles() {
	h.mu.Lock()
	defer h.mu.Unlock()
	due := map[Cell][]*session{}
	for _, s := range h.live {
		if s.conn.Ended() == nil && s.unchecked() != nil {
			due[s.cell] = append(due[s.cell], s)
		}
	}
	if len(due) == 0 || !h.checking.CompareAndSwap(false, true) {
		return
	}
	h.running.Go(func() {
		defer h.checking.Store(false)
		for c, sessions := range due {
			for some := range slices.Chunk(sessions, profilesTogether) {
				if !h.checkSome(c, some) {
					break
				}
			}
		}
	})
}

// checkSome compares the profiles of nodes of one cell. It returns false if the cell does not
// answer.
func (h *Handler) checkSome(c Cell, sessions []*session) bool {
	nodes := map[string]*cell.NodeState{}
	for _, s := range sessions {
		nodes[s.node] = nil
	}
	ctx, cancel := context.WithTimeout(h.calls, callTimeout)
	defer cancel()
	found, err := c.Nodes(ctx, slices.Collect(maps.Keys(nodes)))
	if err != nil {
		if h.calls.Err() == nil {
			h.noteUnanswered("profiles", sessions[0].node, err)
		}
		return false
	}
	for i := range found.Nodes {
		nodes[found.Nodes[i].Node.ID] = &found.Nodes[i]
	}
	for _, s := range sessions {
		if err := s.compare(nodes[s.node]); err != nil {
			h.logRefusal(s.token.Name, s.node, s.address, err)
			s.endRights(err)
		}
	}
	return true
}

// compare returns why the token does not allow what the session's agent has registered. An agent
// that has not registered is compared when it does.
func (s *session) compare(state *cell.NodeState) *freeslot.Error {
	line := s.unchecked()
	if line == nil || state == nil || state.Gone || state.Epoch != s.epoch || s.foreign.Load() {
		return nil
	}
	if err := line.Check(&state.Node); err != nil {
		return err
	}
	s.checked.Store(line)
	return nil
}

// checkKnown compares the profile of an agent that comes back, and so registers no more. It returns
// the order to end the session, or nil.
func (s *session) checkKnown(ctx context.Context, known *cell.NodeLink) *socket.Order {
	if known.Epoch != s.epoch || s.unchecked() == nil {
		return nil
	}
	found, err := s.cell.Nodes(ctx, []string{s.node})
	if err != nil {
		refusal := s.handler.asError("profiles", s.node, err)
		return s.refuse(s.node, refusal, awayOrder(refusal.Message))
	}
	for i := range found.Nodes {
		if err := s.compare(&found.Nodes[i]); err != nil {
			return s.refuse(s.node, err, rightsOrder(err.Message))
		}
	}
	return nil
}

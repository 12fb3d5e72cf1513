package gateway

import (
	"fmt"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/socket"
)

// pingShares is the number of parts in which the sessions are pinged, one part after the other.
// Otherwise all agents of a restarted replica would be pinged at once.
const pingShares = 20

// keepAlive finds agents that are gone without a close, and ends sessions whose tokens end. Its
// pings also keep connections from looking idle to proxies. One loop serves all sessions: a
// goroutine for each would take as much memory as everything else that a session keeps on stacks.
func (h *Handler) keepAlive() {
	tick := time.NewTicker(h.cfg.PingInterval / pingShares)
	defer tick.Stop()
	changed := h.cfg.Tokens.Changed()
	h.checkRights()
	for share := 0; ; {
		select {
		case <-h.calls.Done():
			return
		case <-changed:
			changed = h.cfg.Tokens.Changed()
			h.checkRights()
		case <-tick.C:
			h.ping(share)
			share = (share + 1) % pingShares
		}
	}
}

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
	if s.handler.cfg.Tokens.Holds(s.token.Digest, s.node) {
		return
	}
	err := &freeslot.Error{
		Code:    freeslot.CodePermissionDenied,
		Message: fmt.Sprintf("token %s was removed, has expired, or is no longer for node %s", s.token.Name, s.node),
	}
	s.sendError(0, err)
	s.End(*rightsOrder(err.Message))
}

// ping pings one share of the sessions.
func (h *Handler) ping(share int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.live {
		if s.share != share || !s.pinging.CompareAndSwap(false, true) {
			continue // it is not the session's turn, or the agent has not answered the ping before
		}
		h.running.Go(func() {
			defer s.pinging.Store(false)
			roundTrip, alive := s.conn.Alive(h.calls)
			if roundTrip > 0 {
				s.roundTrip.Store(int64(roundTrip))
			}
			if !alive {
				s.End(socket.Order{Code: frame.CloseSilent, Text: "the agent does not answer pings", Label: closedSilent})
			}
		})
	}
}

package gateway

import (
	"time"

	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/socket"
)

// pingShares is the number of parts in which the sessions are pinged, one part after the other.
// Otherwise all agents of a restarted replica would be pinged at once.
const pingShares = 20

// idleLooks is the number of looks at a session within HeartbeatLimit.
const idleLooks = 4

// keepAlive finds agents that are gone without a close, and ends sessions whose tokens end. Its
// pings also keep connections from looking idle to proxies. One loop serves all sessions: a
// goroutine for each would take as much memory as everything else that a session keeps on stacks.
func (h *Handler) keepAlive() {
	tick := time.NewTicker(h.cfg.PingInterval / pingShares)
	defer tick.Stop()
	look := time.NewTicker(max(h.cfg.HeartbeatLimit/idleLooks, time.Millisecond))
	defer look.Stop()
	changed := h.cfg.Tokens.Changed()
	h.checkRights()
	for share := 0; ; {
		select {
		case <-h.calls.Done():
			return
		case <-changed:
			changed = h.cfg.Tokens.Changed()
			h.checkRights()
			h.checkProfiles()
		case <-look.C:
			h.endIdle()
			h.checkProfiles()
		case <-tick.C:
			h.ping(share)
			share = (share + 1) % pingShares
		}
	}
}

// endIdle ends the sessions whose agents have neither registered nor sent a heartbeat for
// HeartbeatLimit: they hold places, and their nodes do not live. Redis being away ends none. It
// counts looks instead of asking a clock, because a process that was frozen has heard no one
// meanwhile.
func (h *Handler) endIdle() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.live {
		s.idle++
		if s.proved.Swap(false) {
			s.idle = 0
		}
		if s.idle > idleLooks {
			s.End(socket.Order{
				Code: frame.CloseSilent, Text: "no register or heartbeat was accepted within " + h.cfg.HeartbeatLimit.String(),
				Label: closedIdle, Flush: true,
			})
		}
	}
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

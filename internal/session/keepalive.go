package session

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// warning is how long before the end of its token a session is asked to go away: long enough for a
// client to get another token and connect with it.
const warning = 30 * time.Second

// keepAlive finds clients that are gone without a close, and ends the session when its token ends.
// Its pings also keep the connection from looking idle to proxies.
func (s *session) keepAlive() {
	cfg, auth := &s.handler.cfg, s.handler.auth
	// The first ping is spread; otherwise all clients of a restarted replica would be pinged at
	// once.
	timer := time.NewTimer(rand.N(cfg.PingInterval))
	defer timer.Stop()
	warn, expired := s.expiry()
	for {
		changed := auth.Changed()
		if !auth.Holds(&s.principal) {
			s.endRights()
			return
		}
		select {
		case <-s.quit:
			return
		case <-changed:
		case <-warn:
			s.drain("the token expires soon")
		case <-expired:
			s.endRights()
			return
		case <-timer.C:
			if _, alive := s.conn.Alive(context.Background()); !alive {
				s.End(socket.Order{Code: wire.CloseSilentClient, Text: "the client does not answer pings", Label: closedSilent})
				return
			}
			timer.Reset(cfg.PingInterval)
		}
	}
}

// expiry returns channels for the warning and the end of the token; nil ones for a token without an
// end. A session that begins during the warning gets none: its client would come back at once.
func (s *session) expiry() (warn, expired <-chan time.Time) {
	if s.principal.Expires.IsZero() {
		return nil, nil
	}
	left := time.Until(s.principal.Expires)
	if left > warning {
		warn = time.After(left - warning)
	}
	return warn, time.After(left)
}

// endRights ends a session whose token was removed, has expired or has other rights now.
func (s *session) endRights() {
	s.End(socket.Order{
		Code: wire.CloseRights, Text: "the token was removed, has expired, or has other rights now", Label: closedRights,
		Flush: true,
	})
}

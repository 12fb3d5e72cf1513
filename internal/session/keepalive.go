package session

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/socket"
	"github.com/freeslot/freeslot/internal/wire"
)

// keepAlive finds clients that are gone without a close. Its pings also keep the connection from
// looking idle to proxies.
func (s *session) keepAlive() {
	cfg := &s.handler.cfg
	// The first ping is spread; otherwise all clients of a restarted replica would be pinged at
	// once.
	timer := time.NewTimer(rand.N(cfg.PingInterval))
	defer timer.Stop()
	for {
		select {
		case <-s.quit:
			return
		case <-timer.C:
		}
		if _, alive := s.conn.Alive(context.Background()); !alive {
			s.End(socket.Order{Code: wire.CloseSilentClient, Text: "the client does not answer pings", Label: closedSilent})
			return
		}
		timer.Reset(cfg.PingInterval)
	}
}

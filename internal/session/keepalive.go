package session

import (
	"context"
	"math/rand/v2"
	"time"

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
		if !s.alive(cfg.PingTimeout) {
			s.end(order{code: wire.CloseSilentClient, text: "the client does not answer pings", label: closedSilent})
			return
		}
		timer.Reset(cfg.PingInterval)
	}
}

// alive pings the client, and reports whether it lives. A client that does not answer in time may
// still be alive. It may be busy sending; then bytes arrive. This replica may hold it back. Or it
// reads slowly; then the writer decides. A ping that fails for another reason met a closed
// connection.
func (s *session) alive(timeout time.Duration) bool {
	before := s.received.Load()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := s.conn.Ping(ctx)
	return err == nil || ctx.Err() == nil ||
		s.received.Load() != before || s.paused.Load() || s.writing.Load()
}

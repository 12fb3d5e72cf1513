package session

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/internal/wire"
)

// keepAlive finds clients that are gone without a word, and keeps the connection
// from looking idle to what is in between.
func (s *session) keepAlive() {
	cfg := &s.handler.cfg
	// Spread, or all the clients of a restarted replica are pinged at once.
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(cfg.PingInterval))))
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

// alive pings the client. One that does not answer in time may still be alive:
// busy sending, in which case bytes arrive; held back by us; or reading slowly,
// which is for the writer to judge. A ping that fails for another reason than
// time met a connection that is closed already.
func (s *session) alive(timeout time.Duration) bool {
	before := s.received.Load()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := s.conn.Ping(ctx)
	return err == nil || ctx.Err() == nil ||
		s.received.Load() != before || s.paused.Load() || s.writing.Load()
}

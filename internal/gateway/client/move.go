package client

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/retry"
)

// moveParts divides the heartbeat limit into the parts that a move may take: the silence before it,
// the pause, and the connect. A node that heartbeats at half of the limit then has time for a move.
const moveParts = 8

var (
	errBeatUnanswered = errors.New("a heartbeat was not answered in time")
	errBeatRefused    = errors.New("the gateway cannot reach Redis")
	errBeatAnswered   = errors.New("the node's own gateway has answered")
)

// part returns an eighth of the gateway's heartbeat limit.
func (c *connection) part() time.Duration { return max(c.limit()/moveParts, minBeatTimeout) }

// awaitBeat makes the node look for another gateway if no heartbeat is answered in time. The time
// begins with the first unanswered heartbeat, because a call may end before. The caller holds
// store.mu.
func (c *connection) awaitBeat() {
	if c.late != nil {
		return
	}
	var late *time.Timer
	late = time.AfterFunc(c.part(), func() {
		c.store.mu.Lock()
		defer c.store.mu.Unlock()
		if c.late == late {
			c.late, c.doubt = nil, errBeatUnanswered
			notify(c.doubted)
		}
	})
	c.late = late
}

// endAwaitBeat ends the wait. The caller holds store.mu.
func (c *connection) endAwaitBeat() {
	if c.late != nil {
		c.late.Stop()
		c.late = nil
	}
}

// heard takes in the answer to a heartbeat. The caller holds store.mu.
func (c *connection) heard(a *frame.Answer) {
	c.endAwaitBeat()
	if a.Type == frame.TypeError && a.Code == freeslot.CodeUnavailable {
		c.doubt = errBeatRefused
		notify(c.doubted)
		return
	}
	c.doubt, c.calm = nil, 0
}

// reachesRedis reports whether the answer to a heartbeat came from Redis and allows the node to
// live at that gateway. A node that Redis has forgotten registers again through it.
func reachesRedis(a *frame.Answer) bool {
	return a.Type == frame.TypeBeat || a.Type == frame.TypeError && a.Code == frame.CodeUnknownNode
}

func (s *Store) doubtOf(conn *connection) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return conn.doubt
}

// movePause returns the pause before another gateway is tried. It grows until the node's own
// gateway has carried out a heartbeat: while Redis is away, a connect of each node at each
// heartbeat would be a storm.
func (c *connection) movePause() time.Duration {
	c.store.mu.Lock()
	defer c.store.mu.Unlock()
	calm, longest := c.calm, retry.Longest
	if errors.Is(c.doubt, errBeatRefused) {
		longest = c.limit()
	}
	c.calm = min(max(2*calm, c.part()), longest)
	return calm + jitter(c.part())
}

// tryOther connects to one other gateway, beside a connection whose heartbeat was not carried out.
// It moves the node there once Redis has answered a heartbeat through it. Otherwise the node stays,
// also if its own gateway has answered meanwhile. So an outage of Redis moves no node: no gateway
// reaches Redis then, and when Redis is back the node's own gateway comes first. tryOther returns
// the connection that the node has then.
func (s *Store) tryOther(ctx context.Context, conn *connection) *connection {
	select {
	case <-time.After(conn.movePause()):
	case <-conn.ended:
		return conn
	case <-conn.goaway:
		notify(conn.goaway)
		return conn
	case <-ctx.Done():
		return conn
	}
	why := s.doubtOf(conn)
	if why == nil {
		return conn
	}
	candidate, err := s.dialBeside(ctx, conn)
	if err == nil {
		if err = s.moveTo(ctx, candidate, conn); err != nil {
			candidate.leave()
		}
	}
	switch {
	case err == nil:
		s.log.Warn("gateway.moved", append(candidate.fields(), zap.String("from", conn.url.Host), zap.Error(why))...)
		s.cfg.Beat()
		return candidate
	case s.doubtOf(conn) != nil:
		s.log.Info("gateway.stays", append(conn.fields(), zap.Error(why), zap.NamedError("other", err))...)
		notify(conn.doubted)
	}
	return conn
}

func (s *Store) dialBeside(ctx context.Context, conn *connection) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, conn.part())
	defer cancel()
	candidate, err := s.dial(ctx, s.other(conn.url), false)
	if err != nil {
		return nil, err
	}
	candidate.start()
	return candidate, nil
}

// moveTo sends the last heartbeat again, through the candidate. The candidate's reader makes it the
// current connection when the answer comes. That heartbeat's call may have ended, so the answer is
// not for the worker. A call that still waits repeats its heartbeat through the new connection.
func (s *Store) moveTo(ctx context.Context, candidate, from *connection) error {
	s.mu.Lock()
	again, why := s.lastBeat, from.doubt
	s.mu.Unlock()
	again.Now = true
	if errors.Is(why, errBeatRefused) { // the candidate's welcome shows that Redis is there: maybe for both gateways
		ask, cancel := context.WithTimeout(ctx, from.part()/2)
		_, _ = from.roundTrip(ask, &again)
		cancel()
	}
	s.mu.Lock()
	if from.doubt == nil {
		s.mu.Unlock()
		s.cfg.Beat() // the answer may have named jobs
		return errBeatAnswered
	}
	s.candidate = candidate
	s.mu.Unlock()
	ask, cancel := context.WithTimeout(ctx, from.part())
	defer cancel()
	_, err := candidate.roundTrip(ask, &again)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.candidate = nil
	switch {
	case s.current == candidate:
		return nil
	case errors.Is(err, cell.ErrSuperseded):
		s.end(err)
	}
	return cmp.Or(err, errConnectionLost)
}

// switchTo makes conn the current connection. The former one is void from then on. The caller holds
// mu, and fatal is nil.
func (s *Store) switchTo(conn *connection) {
	if former := s.current; former != nil {
		former.lose()
		former.leave()
	}
	s.current = conn
	if !s.registered {
		s.replaces = conn.welcome.Replaces
	}
	s.metrics.connected.Set(1)
	s.announce()
}

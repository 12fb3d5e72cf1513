package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// TestSlowAgent: what an agent does not read is bounded by number and by size. What is one message goes.
func TestSlowAgent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ messages, size int }{{2*queueMessages + 2, 1}, {12, queueBytes / 8}} {
		t.Run(fmt.Sprint(c.size), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *server) {
				p := s.connect()
				s.mu.Lock()
				session := s.live[p.session]
				s.mu.Unlock()
				text := strings.Repeat("x", c.size)
				for range c.messages {
					session.send(&frame.Answer{Type: frame.TypeSync, Reason: text})
				}
				begin := time.Now()
				<-session.done // nobody reads: the close frame is not taken either
				if by := session.conn.Ended(); by.Code != frame.CloseSlow || by.Flush {
					t.Errorf("ended by %+v, expected slow, and that the queue is dropped", by)
				}
				if took := time.Since(begin); took > closeTimeout {
					t.Errorf("the end took %s", took)
				}
			})
		})
	}
}

// TestSlowAgentLearnsWhy: an agent that reads again finds the code.
func TestSlowAgentLearnsWhy(t *testing.T) {
	t.Parallel()
	inBubble(t, func(_ *testing.T, s *server) {
		p := s.connect()
		s.mu.Lock()
		session := s.live[p.session]
		s.mu.Unlock()
		for range 2*queueMessages + 2 {
			session.send(&frame.Answer{Type: frame.TypeSync})
		}
		p.ends(frame.CloseSlow)
	})
}

// TestStuckWrite: one frame that the agent does not take ends the session too.
func TestStuckWrite(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.Handler.cfg.HeartbeatLimit = time.Minute
		p := s.connect()
		s.mu.Lock()
		session := s.live[p.session]
		s.mu.Unlock()
		begin := time.Now()
		session.send(&frame.Answer{Type: frame.TypeSync, Reason: strings.Repeat("x", 64<<10)})
		<-session.done
		if by, took := session.conn.Ended(), time.Since(begin); by.Label != closedSlow || took != writeTimeout {
			t.Errorf("ended by %+v after %s", by, took)
		}
	})
}

func TestSilentAgent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.dial("gpu", true)
		p.send(`{"type":"hello","node":"gpu-1","epoch":"e1","connection":1}`)
		p.welcomed()
		begin := time.Now()
		p.ends(frame.CloseSilent)
		if took := time.Since(begin); took > DefaultPingInterval+pingTimeout {
			t.Errorf("the end took %s", took)
		}
	})
}

// TestFullOfDeadSessions: an agent whose connection broke in silence finds its own place in a full
// replica, a stranger or an earlier connection does not.
func TestFullOfDeadSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 2)
		hello := func(token, node, epoch string, number int) *peer {
			p := s.dial(token, true)
			p.send(fmt.Sprintf(`{"type":"hello","node":"%s","epoch":"%s","connection":%d}`, node, epoch, number))
			return p
		}
		refused := func(p *peer) {
			t.Helper()
			p.expect(`{"type":"error","code":"overloaded",…}`)
			p.ends(websocket.StatusTryAgainLater)
		}
		first, beside := hello("gpu", "gpu-1", "e1", 2), hello("gpu", "gpu-2", "e1", 1)
		first.welcomed()
		beside.welcomed()
		begin := time.Now()
		refused(hello("gpu", "gpu-3", "e1", 3))
		refused(hello("two", "gpu-1", "e1", 3))
		refused(hello("gpu", "gpu-1", "e1", 1))
		refused(hello("gpu", "gpu-1", "e1", 2))
		second := hello("gpu", "gpu-1", "e1", 3)
		second.welcomed()
		first.ends(frame.CloseReplaced)
		third := hello("gpu", "gpu-1", "e2", 1)
		third.welcomed()
		second.ends(frame.CloseReplaced)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %s", took)
		}
		synctest.Wait()
		if got := s.metric("freeslot_gateway_agents"); got != 2 {
			t.Errorf("%v agents", got)
		}
		third.send(`{"type":"heartbeat","id":1}`)
		third.expect(`{"type":"beat","id":1}`)
	})
}

// TestPings: an agent that answers pings lives, and its round trip is known. A proxy sees no longer
// silence than the configured interval.
func TestPings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 100)
		const interval = 5 * time.Second
		s.Handler.cfg.PingInterval = interval
		p := s.connect()
		read := make(chan error, 1)
		go func() {
			for {
				if _, _, err := p.conn.Read(context.Background()); err != nil {
					read <- err
					return
				}
			}
		}()
		go func() {
			for n := 1; p.conn.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"heartbeat","id":%d}`, n)) == nil; n++ {
				wait(t.Context(), testLimit/4)
			}
		}()
		select {
		case err := <-read:
			t.Errorf("the session ended: %v", err)
		case <-time.After(10 * interval):
		}
		if n := s.pings.Load(); n < 9 || n > 11 {
			t.Errorf("%d pings in ten intervals", n)
		}
		_ = p.conn.CloseNow()
		if err := <-read; err == nil {
			t.Error("a read of a closed connection brings something")
		}
	})
}

// TestRightsEnd: a session ends with its token, or with the token's right to the node, also while the
// agent does not answer a ping.
func TestRightsEnd(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{
		"removed":       {},
		"another node":  {"{name: gpu, nodes: [gpu-2]}"},
		"expires":       {"{name: gpu, nodes: [gpu-1], expires: 2000-01-01T00:00:03Z}"}, // bubbles begin in 2000
		"silent":        {},
		"other changed": {"{name: gpu, nodes: [gpu-1]}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *server) {
				p := s.dial("gpu", name == "silent")
				p.send(`{"type":"hello","node":"gpu-1","epoch":"e1","connection":1}`)
				p.welcomed()
				begin := time.Now()
				s.writeTokens(lines...)
				if name == "other changed" {
					wait(t.Context(), 3*time.Second)
					p.send(`{"type":"heartbeat","id":1}`)
					p.expect(`{"type":"beat","id":1}`)
					return
				}
				p.expect(`{"type":"error","code":"permission_denied","message":"…"}`)
				p.ends(frame.CloseRights)
				if took := time.Since(begin); took > 5*time.Second {
					t.Errorf("the end took %s", took)
				}
			})
		})
	}
}

// TestLimitsChange: a register is held against the line as it is now.
func TestLimitsChange(t *testing.T) {
	t.Parallel()
	inBubble(t, func(_ *testing.T, s *server) {
		p := s.connect()
		s.writeTokens("{name: gpu, nodes: [gpu-1], slots: 1}")
		changed := s.cfg.Tokens.Changed()
		<-changed
		p.send(`{"type":"register","id":1,"profile":{"max_concurrency":2}}`)
		p.expect(`{"type":"error","id":1,"code":"permission_denied",…,"field":"profile.max_concurrency"}`)
	})
}

func TestDrain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		leaves, stays := s.connect(), s.connect()
		pending := s.dial("gpu", false)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		drained := make(chan error)
		go func() { drained <- s.Drain(ctx) }()
		for _, p := range []*peer{leaves, stays} {
			p.expect(`{"type":"goaway","reason":"the replica is stopping"}`)
		}
		if took := time.Since(begin); took > drainPause {
			t.Errorf("to ask two agents took %s", took)
		}
		expectRefusal(t, s.handshake(nothing), 503, "unavailable", "")
		pending.send(`{"type":"hello","node":"gpu-1","epoch":"e1","connection":1}`)
		pending.expect(`{"type":"error","code":"unavailable","message":"the replica is stopping","retry_after_ms":1000}`)
		pending.ends(websocket.StatusGoingAway)
		_ = leaves.conn.Close(websocket.StatusNormalClosure, "")
		stays.send(`{"type":"heartbeat","id":1}`)
		stays.expect(`{"type":"beat","id":1}`) // until it has gone elsewhere, it lives by this one
		stays.ends(websocket.StatusGoingAway)
		if err := <-drained; err == nil || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 did not leave") {
			t.Errorf("drain: %v", err)
		}
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("drain took %s", took)
		}
	})
}

// TestDrainPace: agents are asked one by one, all within half of the time, and no faster than needed.
func TestDrainPace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		agents int
		time   time.Duration
		pause  time.Duration
	}{{5, time.Minute, drainPause}, {10, time.Second, 50 * time.Millisecond}} {
		inBubble(t, func(t *testing.T, s *server) {
			peers := make([]*peer, c.agents)
			for i := range peers {
				peers[i] = s.connect()
			}
			begin := time.Now()
			asked := make(chan time.Duration, c.agents)
			var leaving sync.WaitGroup
			for _, p := range peers {
				leaving.Go(func() {
					p.expect(`{"type":"goaway",…}`)
					asked <- time.Since(begin)
					_ = p.conn.Close(websocket.StatusNormalClosure, "")
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), c.time)
			defer cancel()
			if err := s.Drain(ctx); err != nil {
				t.Error(err)
			}
			leaving.Wait()
			for i := range c.agents {
				if at := <-asked; at != time.Duration(i)*c.pause {
					t.Errorf("agent %d of %d was asked after %s", i+1, c.agents, at)
				}
			}
		})
	}
}

func TestDrainEnds(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.connect()
		drained := make(chan error)
		begin := time.Now()
		go func() { drained <- s.Drain(t.Context()) }()
		p.expect(`{"type":"goaway",…}`)
		_ = p.conn.Close(websocket.StatusNormalClosure, "")
		if err := <-drained; err != nil || time.Since(begin) > 0 {
			t.Errorf("drain took %s, error %v", time.Since(begin), err)
		}
		if err := s.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestStop: sessions end with a code, pending connections too, and what was asked is carried out.
func TestStop(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		began, release := make(chan struct{}), make(chan struct{})
		s.cell.complete = func(ctx context.Context, _ cell.Completion) (cell.CompletionOutcome, error) {
			close(began)
			<-release
			return cell.Completed, ctx.Err()
		}
		p, pending := s.connect(), s.dial("gpu", false)
		p.send(`{"type":"complete","id":1,"attempt":"` + jobID + `:1","state":"cancelled"}`)
		<-began
		stopped := make(chan error, 2)
		for range 2 {
			go func() { stopped <- s.Stop(t.Context()) }()
		}
		p.ends(websocket.StatusGoingAway)
		pending.ends(websocket.StatusGoingAway)
		synctest.Wait()
		if len(stopped) > 0 {
			t.Error("Stop does not wait for a request")
		}
		close(release)
		for range 2 {
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}
		if got := s.metric("freeslot_gateway_requests_total", "ok", "complete"); got != 1 {
			t.Errorf("%v completions were carried out", got)
		}
		expectRefusal(t, s.handshake(nothing), 503, "unavailable", "")
	})
}

// TestStopCuts: agents that take no close frame do not hold the replica up.
func TestStopCuts(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.connect() // reads no more
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stop: %v", err)
		}
		synctest.Wait()
		if err := s.Stop(t.Context()); err != nil || s.open.Len() > 0 {
			t.Errorf("%d sessions are open, error %v", s.open.Len(), err)
		}
	})
}

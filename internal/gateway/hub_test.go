package gateway

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

func job(ms, n int) cell.Dispatch {
	return cell.Dispatch{ID: fmt.Sprintf("%d-0", ms), Attempt: cell.Attempt{Job: "j", N: n}, Tenant: "t"}
}

// TestHeld: what comes before the first answered heartbeat follows its answer, unless it is older.
func TestHeld(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.connect()
		s.cell.stream <- p.brought(job(99, 1), job(100, 2), cell.Dispatch{ID: "101-0", Attempt: cell.Attempt{Job: "j", N: 2}, Cancel: true})
		synctest.Wait()
		p.send(`{"type":"heartbeat","id":1}`)
		p.expect(`{"type":"beat","id":1}`)
		p.expect(`{"type":"jobs","jobs":[{"attempt":"j:2","tenant":"t"}]}`)
		p.expect(`{"type":"cancel","attempts":["j:2"]}`)
		s.cell.stream <- p.brought(job(99, 3), job(102, 4))
		p.expect(`{"type":"jobs","jobs":[{"attempt":"j:4","tenant":"t"}]}`)
		if got := s.metric("freeslot_gateway_deliveries_total", "old"); got != 2 {
			t.Errorf("%v old entries", got)
		}
	})
}

// TestSameMillisecond: an entry of the heartbeat's own millisecond follows the answer, unless that has
// named the attempt.
func TestSameMillisecond(t *testing.T) {
	t.Parallel()
	inBubble(t, func(_ *testing.T, s *server) {
		s.cell.heartbeat = func(context.Context, cell.Heartbeat, cell.Link) (cell.HeartbeatReply, error) {
			return cell.HeartbeatReply{AtMS: 100, Start: []cell.Attempt{{Job: "j", N: 1}}, Cancel: []cell.Attempt{{Job: "j", N: 2}}}, nil
		}
		p := s.connect()
		p.send(`{"type":"heartbeat","id":1}`)
		p.expect(`{"type":"beat","id":1,"start":["j:1"],"cancel":["j:2"]}`)
		cancel := func(n int) cell.Dispatch {
			return cell.Dispatch{ID: "100-1", Attempt: cell.Attempt{Job: "j", N: n}, Cancel: true}
		}
		s.cell.stream <- p.brought(job(100, 1), job(100, 2), cancel(2), cancel(1))
		p.expect(`{"type":"jobs","jobs":[{"attempt":"j:2","tenant":"t"}]}`)
		p.expect(`{"type":"cancel","attempts":["j:1"]}`)
	})
}

// TestHeldIsBounded: an agent without a heartbeat costs few entries, and fewer specs.
func TestHeldIsBounded(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.connect()
		found := make([]cell.Dispatch, maxHeld+3)
		for i := range found {
			found[i] = job(100, i+1)
			found[i].Job = &freeslot.Job{Service: "tts"}
		}
		s.cell.stream <- p.brought(found...)
		synctest.Wait()
		s.mu.Lock()
		session := s.live[p.session]
		s.mu.Unlock()
		session.mu.Lock()
		specs := 0
		for i := range session.held {
			if session.held[i].Job != nil {
				specs++
			}
		}
		if len(session.held) != maxHeld || specs != maxHeldSpecs {
			t.Errorf("%d entries and %d specs are held", len(session.held), specs)
		}
		session.mu.Unlock()
		if got := s.metric("freeslot_gateway_deliveries_total", "dropped"); got != 3 {
			t.Errorf("%v entries are dropped", got)
		}
	})
}

// TestOtherSessions: entries are for their session alone, and for its node.
func TestOtherSessions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		former, p := s.connectAs("gpu", "gpu-1", 1), s.connectAs("gpu", "gpu-1", 2)
		for _, one := range []*peer{former, p} {
			one.send(`{"type":"heartbeat","id":1}`)
			one.expect(`{"type":"beat","id":1}`)
		}
		found := p.brought(job(100, 1), job(100, 2), job(100, 3), job(100, 4))
		found[0].Session, found[1].Node, found[2].Session = "gone", "gpu-2", former.session
		s.cell.stream <- found
		former.expect(`{"type":"jobs","jobs":[{"attempt":"j:3","tenant":"t"}]}`)
		p.expect(`{"type":"jobs","jobs":[{"attempt":"j:4","tenant":"t"}]}`)
		if got := s.metric("freeslot_gateway_deliveries_total", "dropped"); got != 2 {
			t.Errorf("%v entries are dropped", got)
		}
	})
}

// TestPosition: the stream is read on from the last entry, trimmed up to it, and deleted in the end.
func TestPosition(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		kept := make(chan string, 100)
		s.cell.keep = func(trimTo string) error { kept <- trimTo; return nil }
		p := s.connect()
		s.connect() // shares the stream
		if first := <-kept; first != "" {
			t.Errorf("trimmed to %q before a read", first)
		}
		s.cell.stream <- p.brought(job(7, 1), job(9, 2))
		if next := <-kept; next != "9-0" {
			t.Errorf("trimmed to %q", next)
		}
		if first, second := <-s.cell.reads, <-s.cell.reads; first != "" || second != "9-0" || len(s.cell.reads) > 0 {
			t.Errorf("reads after %q, %q, and %d more", first, second, len(s.cell.reads))
		}
		if err := s.Stop(t.Context()); err != nil || s.cell.closed.Load() != 1 {
			t.Errorf("closed %d times, stop: %v", s.cell.closed.Load(), err)
		}
	})
}

// TestGone: a stream that was gone is opened anew and read from its start, and all agents that may have
// missed deliveries are asked for a heartbeat, but none before its first answer.
func TestGone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		opened := make(chan struct{}, 10)
		var gone atomic.Bool
		s.cell.open = func(string) error { opened <- struct{}{}; return nil }
		s.cell.keep = func(string) error {
			if gone.CompareAndSwap(true, false) {
				return fmt.Errorf("keep: %w", cell.ErrGatewayGone)
			}
			return nil
		}
		release := make(chan struct{})
		s.cell.heartbeat = func(_ context.Context, hb cell.Heartbeat, _ cell.Link) (cell.HeartbeatReply, error) {
			if hb.Now {
				<-release
			}
			return cell.HeartbeatReply{AtMS: 100}, nil
		}
		beats, waits, silent := s.connect(), s.connect(), s.connect()
		<-opened
		beats.send(`{"type":"heartbeat","id":1}`)
		beats.expect(`{"type":"beat","id":1}`)
		time.Sleep(keepInterval * 4 / 5) // in virtual time, so that the stream goes while the next heartbeat is under way
		waits.send(`{"type":"heartbeat","id":1,"now":true}`)
		s.cell.stream <- beats.brought(job(200, 1))
		beats.expect(`{"type":"jobs",…}`)
		synctest.Wait()
		for len(s.cell.reads) > 0 {
			<-s.cell.reads
		}
		gone.Store(true)
		<-opened
		beats.expect(`{"type":"sync"}`)
		if after := <-s.cell.reads; after != "" {
			t.Errorf("the new stream is read after %q", after)
		}
		synctest.Wait()
		close(release)
		waits.expect(`{"type":"beat","id":1}`)
		waits.expect(`{"type":"sync"}`)
		silent.send(`[{"type":"heartbeat","id":1},{"type":"spec","id":2,"job_id":"x"}]`)
		first, second := string(silent.read()), string(silent.read())
		if !like(`{"type":"beat","id":1}`, first) && !like(`{"type":"beat","id":1}`, second) {
			t.Errorf("got %s and %s", first, second)
		}
	})
}

// TestStreamFails: while the stream cannot be opened or read, sessions go on, and it is tried again.
func TestStreamFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		fails := 5
		s.cell.open = func(string) error {
			if fails--; fails >= 0 {
				return errors.New("redis is away")
			}
			return nil
		}
		failing := failingStream{fakeCell: s.cell, fails: 5}
		s.cfg.Cells = func(string) Cell { return &failing }
		begin := time.Now()
		p := s.connect()
		p.send(`{"type":"heartbeat","id":1,"now":true}`)
		p.expect(`{"type":"beat","id":1}`)
		if time.Since(begin) > 0 {
			t.Error("the session waits for the stream")
		}
		p.expect(`{"type":"sync"}`)
		s.cell.stream <- p.brought(job(100, 1))
		p.expect(`{"type":"jobs","jobs":[{"attempt":"j:1","tenant":"t"}]}`)
		if took := time.Since(begin); took < 600*time.Millisecond || took > 10*time.Second {
			t.Errorf("five failed openings and five failed reads took %s", took)
		}
	})
}

type failingStream struct {
	*fakeCell
	fails int
}

func (f *failingStream) GatewayDispatches(ctx context.Context, replica, after string, block time.Duration, limit int) ([]cell.GatewayDispatch, error) {
	if f.fails > 0 {
		f.fails--
		return nil, errors.New("redis is away")
	}
	return f.fakeCell.GatewayDispatches(ctx, replica, after, block, limit)
}

package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// completeMany begins to end the numbered attempts, and returns a channel for each one's error.
func (s *scriptedStore) completeMany(t *testing.T, n int, result string) []<-chan error {
	out := make([]<-chan error, n)
	for i := range out {
		out[i] = gatewaytest.Async(func() error {
			outcome, err := s.Complete(t.Context(), cell.Completion{
				Attempt: id(i), State: freeslot.StateSucceeded, Result: json.RawMessage(`"` + result + `"`),
			})
			if err == nil && outcome != cell.Completed {
				t.Errorf("job %d: the outcome is %q, expected %q", i, outcome, cell.Completed)
			}
			return err
		})
	}
	return out
}

// waiting is a session whose line stood still while ends queued.
type waiting struct {
	*scriptedStore
	peer *gatewaytest.Session
	ends []<-chan error
	asks []*frame.Request
}

// endTogether ends n attempts on a line that stands still for a moment.
func endTogether(t *testing.T, p *gatewaytest.Network, n int, result string) *waiting {
	t.Helper()
	w := &waiting{}
	var busy chan struct{}
	w.scriptedStore, w.peer, busy = startSlowStore(t, p)
	w.peer.Frames.Store(0)
	busy <- struct{}{}
	first := gatewaytest.Async(func() error {
		_, err := w.Progress(t.Context(), "", "", nil)
		return err
	})
	synctest.Wait() // its frame is being written
	w.ends = w.completeMany(t, n, result)
	synctest.Wait()
	<-busy
	w.peer.Send(&frame.Answer{Type: frame.TypeProgressed, ID: w.peer.Next(frame.TypeProgress).ID})
	if err := <-first; err != nil {
		t.Error(err)
	}
	return w
}

// TestGatewayEndsInOneFrame: ends that wait together leave in one frame, and of the answers in one
// frame each goes to its own caller, also a refusal.
func TestGatewayEndsInOneFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ends, refused = 20, 7
		var p gatewaytest.Network
		w := endTogether(t, &p, ends, "")
		answers := make([]*frame.Answer, ends)
		for i := range answers {
			q := w.peer.Next(frame.TypeComplete)
			answers[i] = &frame.Answer{Type: frame.TypeCompleted, ID: q.ID, Outcome: "completed"}
			if *q.Attempt == framed(refused) {
				answers[i] = &frame.Answer{Type: frame.TypeError, ID: q.ID, Code: freeslot.CodeInvalidArgument, Message: "m"}
			}
		}
		if n := w.peer.Frames.Load(); n != 2 {
			t.Errorf("the ends came in %d frames, expected 1", n-1)
		}
		w.peer.Send(answers...)
		for i, end := range w.ends {
			if err := <-end; (err != nil) != (i == refused) || err != nil && freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
				t.Errorf("job %d: %v", i, err)
			}
		}
	})
}

// TestGatewayCutWithinArray: the answers that have come count. Those of a frame that was cut do not,
// and neither do those that had not been sent.
func TestGatewayCutWithinArray(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ends, answered = 20, 8
		var p gatewaytest.Network
		w := endTogether(t, &p, ends, "")
		came := map[frame.Attempt]bool{}
		for n := range ends {
			q := w.peer.Next(frame.TypeComplete)
			if n < answered {
				came[*q.Attempt] = true
				w.peer.Send(&frame.Answer{Type: frame.TypeCompleted, ID: q.ID, Outcome: "completed"})
				continue
			}
			w.asks = append(w.asks, q)
		}
		part := []byte{'['}
		for _, q := range w.asks {
			part, _ = frame.Append(part, &frame.Answer{
				Type: frame.TypeCompleted, ID: q.ID, Outcome: "completed", Begun: []frame.Delivery{{Attempt: framed(ends)}},
			})
			part = append(part, ',')
		}
		synctest.Wait()
		out, err := w.peer.Socket.Writer(t.Context(), websocket.MessageText)
		if err == nil {
			_, err = out.Write(part)
		}
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		p.Fail(false)
		for i, end := range w.ends {
			if err := <-end; came[framed(i)] != (err == nil) || err != nil && !errors.Is(err, errConnectionLost) {
				t.Errorf("job %d, answered: %t: %v", i, came[framed(i)], err)
			}
		}
	})
}

// TestGatewayLargeResultsTogether: results that just fit into a message wait for each other, and no
// frame is larger than the gateway takes.
func TestGatewayLargeResultsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ends, bytes = 64, 60 << 10
		var p gatewaytest.Network
		w := endTogether(t, &p, ends, strings.Repeat("x", bytes))
		for range ends {
			synctest.Wait()
			if n := len(w.peer.Requests) + len(w.asks); n > reportBytes/bytes {
				t.Errorf("%d results are under way", n)
			}
			w.peer.Send(&frame.Answer{Type: frame.TypeCompleted, ID: w.peer.Next(frame.TypeComplete).ID, Outcome: "completed"})
		}
		for i, end := range w.ends {
			if err := <-end; err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		}
		if n := w.peer.LargestFrame.Load(); n > frame.MaxFrameBytes || n > bytes+arrayBytes {
			t.Errorf("the largest frame had %d bytes", n)
		}
	})
}

// TestGatewayTimeOfEnds: each end has its time from the moment at which it was sent, whatever is
// answered meanwhile.
func TestGatewayTimeOfEnds(t *testing.T) {
	for round := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { timeEnds(t, rand.New(rand.NewPCG(round, 1))) })
	}
}

func timeEnds(t *testing.T, r *rand.Rand) {
	const ends = 100
	var p gatewaytest.Network
	g := gatewaytest.Serve(t, &p, "a")
	s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
	peer := g.Session()
	after := make([]time.Duration, ends) // when the answer comes
	for i := range after {
		after[i] = time.Duration(r.Int64N(2*s.cfg.CallTimeout.Milliseconds())) * time.Millisecond
	}
	number := map[frame.Attempt]int{}
	for i := range ends {
		number[framed(i)] = i
	}
	go func() {
		for q := range peer.Requests {
			time.AfterFunc(after[number[*q.Attempt]], func() {
				peer.Send(&frame.Answer{Type: frame.TypeCompleted, ID: q.ID, Outcome: "completed"})
			})
		}
	}()
	var waits sync.WaitGroup
	for i := range ends {
		pause := time.Duration(r.IntN(5000)) * time.Millisecond
		waits.Go(func() {
			time.Sleep(pause) // in virtual time
			begin := time.Now()
			_, err := s.Complete(context.Background(), cell.Completion{Attempt: id(i), State: freeslot.StateSucceeded})
			took := time.Since(begin)
			switch {
			case after[i] == s.cfg.CallTimeout: // either may come first
			case after[i] < s.cfg.CallTimeout:
				if err != nil || took != after[i] {
					t.Errorf("job %d: %v after %s, expected an answer after %s", i, err, took, after[i])
				}
			case !errors.Is(err, context.DeadlineExceeded) || took != s.cfg.CallTimeout:
				t.Errorf("job %d: %v after %s, expected none within %s", i, err, took, s.cfg.CallTimeout)
			}
		})
	}
	waits.Wait()
}

// promptConn takes what is written at once, as a kernel does.
type promptConn struct {
	net.Conn
	written chan []byte
	closed  chan struct{}
	close   func()
}

func newPromptConn(conn net.Conn) *promptConn {
	c := &promptConn{Conn: conn, written: make(chan []byte, 1024), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	go func() {
		for {
			select {
			case p := <-c.written:
				_, _ = conn.Write(p)
			case <-c.closed:
				return
			}
		}
	}()
	return c
}

func (c *promptConn) Write(p []byte) (int, error) {
	c.written <- bytes.Clone(p)
	return len(p), nil
}

func (c *promptConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// TestGatewayEndsGather: ends that are ready together share frames, although nothing holds the line
// up.
func TestGatewayEndsGather(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const ends = 64
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := newScriptedStore(t, &p, Config{Gateway: "ws://a"})
		s.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := p.Dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newPromptConn(conn), nil
		}
		s.startUntilEnd(t)
		peer := g.Session()
		peer.Frames.Store(0)
		done := s.completeMany(t, ends, "")
		for range ends {
			peer.Send(&frame.Answer{Type: frame.TypeCompleted, ID: peer.Next(frame.TypeComplete).ID, Outcome: "completed"})
		}
		for i, end := range done {
			if err := <-end; err != nil {
				t.Errorf("job %d: %v", i, err)
			}
		}
		if n := peer.Frames.Load(); n > ends/4 {
			t.Errorf("%d ends came in %d frames", ends, n)
		}
	})
}

// TestOnlyEndsWaitForEnds: a heartbeat does not wait for the ends of jobs that are about to queue.
func TestOnlyEndsWaitForEnds(t *testing.T) {
	for _, queued := range []struct {
		kinds []frame.Type
		want  int
	}{
		{nil, 0},
		{[]frame.Type{frame.TypeComplete, frame.TypeProgress}, 2},
		{[]frame.Type{frame.TypeHeartbeat, frame.TypeComplete}, 0},
		{[]frame.Type{frame.TypeProgress}, 0},
	} {
		c := &connection{store: &Store{}}
		for _, kind := range queued.kinds {
			c.out = append(c.out, &pendingCall{kind: kind})
		}
		if got := c.ending(); got != queued.want {
			t.Errorf("%v: %d, expected %d", queued.kinds, got, queued.want)
		}
	}
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// slowConn sends 10 Mbit/s, and nothing while busy has a token.
type slowConn struct {
	net.Conn
	busy chan struct{}
}

func (c slowConn) Write(p []byte) (n int, err error) {
	c.busy <- struct{}{}
	defer func() { <-c.busy }()
	for n < len(p) && err == nil {
		time.Sleep(time.Millisecond) // in virtual time
		var m int
		m, err = c.Conn.Write(p[n:min(n+1250, len(p))])
		n += m
	}
	return n, err
}

// slow makes the store's line slow from the next connect on, and returns what stops it.
func (s *scriptedStore) slow(p *gatewaytest.Network) (busy chan struct{}) {
	busy = make(chan struct{}, 1)
	s.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := p.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return slowConn{conn, busy}, nil
	}
	return busy
}

// startSlowStore starts a store with a slow line, and returns its session besides.
func startSlowStore(t *testing.T, p *gatewaytest.Network) (s *scriptedStore, peer *gatewaytest.Session, busy chan struct{}) {
	t.Helper()
	g := gatewaytest.Serve(t, p, "a")
	s = newScriptedStore(t, p, Config{Gateway: "ws://a"})
	busy = s.slow(p)
	s.startUntilEnd(t)
	peer = g.Session()
	peer.Socket.SetReadLimit(-1)
	return s, peer, busy
}

// TestGatewayManyResultsAtOnce: results that fill a slow line for longer than a call may take arrive
// once each, and heartbeats do not wait behind them.
func TestGatewayManyResultsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const results = 100
		var p gatewaytest.Network
		s, peer, _ := startSlowStore(t, &p)
		arrived := map[frame.Attempt]int{}
		go func() {
			for q := range peer.Requests {
				switch q.Type {
				case frame.TypeHeartbeat:
					peer.Send(&frame.Answer{Type: frame.TypeBeat, ID: q.ID})
				case frame.TypeComplete:
					arrived[*q.Attempt]++
					peer.Send(&frame.Answer{Type: frame.TypeCompleted, ID: q.ID, Outcome: "completed"})
				}
			}
		}()
		begin, ended := time.Now(), make(chan struct{})
		var reports, beats sync.WaitGroup
		for n := range results {
			reports.Go(func() {
				_, err := s.Complete(t.Context(), cell.Completion{
					Attempt: id(n), State: freeslot.StateSucceeded, Result: json.RawMessage(`"` + strings.Repeat("x", 60_000) + `"`),
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		beats.Go(func() {
			for {
				begin := time.Now()
				if err := <-s.heartbeat(t); err != nil || time.Since(begin) > 500*time.Millisecond {
					t.Errorf("a heartbeat: %v after %s", err, time.Since(begin))
				}
				select {
				case <-time.After(100 * time.Millisecond):
				case <-ended:
					return
				}
			}
		})
		reports.Wait()
		took := time.Since(begin)
		close(ended)
		beats.Wait()
		if took < s.cfg.CallTimeout || took > 6*time.Second {
			t.Errorf("the results took %s", took)
		}
		for n := range results {
			if arrived[framed(n)] != 1 {
				t.Errorf("result %d arrived %d times", n, arrived[framed(n)])
			}
		}
	})
}

// TestGatewayQueue: a heartbeat comes before what waits, and what was given up is not sent.
func TestGatewayQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		s, peer, busy := startSlowStore(t, &p)
		busy <- struct{}{}
		complete := func(ctx context.Context, n int) <-chan error {
			done := gatewaytest.Async(func() error {
				_, err := s.Complete(ctx, cell.Completion{Attempt: id(n), State: freeslot.StateSucceeded})
				return err
			})
			synctest.Wait()
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		first, second, third := complete(t.Context(), 1), complete(ctx, 2), complete(t.Context(), 3)
		beat := s.heartbeat(t)
		synctest.Wait()
		cancel()
		if err := <-second; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-busy
		answer := func(n int) {
			t.Helper()
			q := peer.Next(frame.TypeComplete)
			if *q.Attempt != framed(n) {
				t.Errorf("got the report of %v, expected %v", *q.Attempt, framed(n))
			}
			peer.Send(&frame.Answer{Type: frame.TypeCompleted, ID: q.ID, Outcome: "completed"})
		}
		answer(1)
		peer.Send(&frame.Answer{Type: frame.TypeBeat, ID: peer.Next(frame.TypeHeartbeat).ID})
		answer(3)
		for _, done := range []<-chan error{first, beat, third} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestGatewayManySpecsAtOnce: what the gateway must send at once has a bound, which grows while
// answers come fast.
func TestGatewayManySpecsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const specs = 100
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		var reads sync.WaitGroup
		for range specs {
			reads.Go(func() {
				if _, _, err := s.Spec(t.Context(), "j"); err != nil {
					t.Error(err)
				}
			})
		}
		most := 0
		for answered := range specs {
			synctest.Wait()
			n := len(peer.Requests)
			if most = max(most, n); answered == 0 && n != 1 {
				t.Errorf("%d requests under way before the first answer", n)
			}
			peer.Send(&frame.Answer{Type: frame.TypeSpec, ID: peer.Next(frame.TypeSpec).ID, Job: &freeslot.Job{Service: "s"}})
		}
		reads.Wait()
		if most != maxSpecs {
			t.Errorf("up to %d requests were under way", most)
		}
	})
}

// farConn receives what was sent a while ago, as much as there is.
type farConn struct {
	net.Conn
	delay time.Duration
	came  chan farPart
	rest  []byte
}

// farPart can be read from a time on. It is empty at the end.
type farPart struct {
	bytes []byte
	from  time.Time
}

// receive takes in what comes until the connection ends.
func (c *farConn) receive() {
	defer close(c.came)
	for {
		part := make([]byte, 32<<10)
		n, err := c.Conn.Read(part)
		if err != nil {
			return
		}
		c.came <- farPart{part[:n], time.Now().Add(c.delay)}
	}
}

func (c *farConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		part, ok := <-c.came
		if !ok {
			return 0, io.EOF
		}
		time.Sleep(time.Until(part.from)) // in virtual time
		c.rest = part.bytes
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// TestGatewaySpecsOnFarLine: a line that is far and not slow has as many specs under way as a near one.
func TestGatewaySpecsOnFarLine(t *testing.T) {
	for limit, far := range map[time.Duration]time.Duration{8 * time.Second: 500 * time.Millisecond, 2 * time.Second: 100 * time.Millisecond} {
		t.Run(limit.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const specs = 256
				var p gatewaytest.Network
				g := gatewaytest.Serve(t, &p, "a")
				g.Limit = limit
				s := newScriptedStore(t, &p, Config{Gateway: "ws://a"})
				s.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := p.Dial(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					c := &farConn{Conn: conn, delay: far, came: make(chan farPart, 1024)}
					go c.receive()
					return c, nil
				}
				if err := s.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Stop(t.Context()) }()
				peer := g.Session()
				go func() {
					job := &freeslot.Job{Service: "s", Payload: json.RawMessage(`"` + strings.Repeat("x", 8_000) + `"`)}
					for q := range peer.Requests {
						peer.Send(&frame.Answer{Type: frame.TypeSpec, ID: q.ID, Job: job})
					}
				}()
				begin := time.Now()
				var reads sync.WaitGroup
				for range specs {
					reads.Go(func() {
						if _, _, err := s.Spec(t.Context(), "j"); err != nil {
							t.Error(err)
						}
					})
				}
				reads.Wait()
				// It begins with one spec, and the number doubles with each round trip.
				if took := time.Since(begin); took > (specs/maxSpecs+6)*far {
					t.Errorf("%d specs took %s", specs, took)
				}
			})
		})
	}
}

// slowReads receives 1 Mbit/s.
type slowReads struct{ net.Conn }

func (c slowReads) Read(p []byte) (int, error) {
	time.Sleep(10 * time.Millisecond) // in virtual time
	return c.Conn.Read(p[:min(len(p), 1250)])
}

// TestGatewaySpecsOnSlowLine: specs that just fit into a frame arrive by a slow line, asked for once
// each, and heartbeats are answered meanwhile.
func TestGatewaySpecsOnSlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const specs = 64
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		s := newScriptedStore(t, &p, Config{Gateway: "ws://a"})
		s.transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := p.Dial(ctx, network, addr)
			return slowReads{conn}, err
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Stop(t.Context()) }()
		asked := 0
		peer := g.Session()
		go func() {
			job := &freeslot.Job{Service: "s", Payload: json.RawMessage(`"` + strings.Repeat("x", 60_000) + `"`)}
			for q := range peer.Requests {
				if q.Type == frame.TypeHeartbeat {
					peer.Send(&frame.Answer{Type: frame.TypeBeat, ID: q.ID})
					continue
				}
				asked++
				peer.Send(&frame.Answer{Type: frame.TypeSpec, ID: q.ID, Job: job})
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var reads sync.WaitGroup
		for range specs {
			reads.Go(func() {
				for _, _, err := s.Spec(ctx, "j"); err != nil; _, _, err = s.Spec(ctx, "j") {
					if ctx.Err() != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		ended := make(chan struct{})
		go func() {
			reads.Wait()
			close(ended)
		}()
		for waits := true; waits; {
			begin := time.Now()
			hb, done := context.WithTimeout(t.Context(), time.Minute)
			_, err := s.Heartbeat(hb, cell.Heartbeat{Status: freeslot.StatusOnline})
			done()
			if took := time.Since(begin); err != nil || took > time.Second {
				t.Errorf("a heartbeat: %v after %s", err, took)
			}
			select {
			case <-time.After(time.Second):
			case <-ended:
				waits = false
			}
		}
		if len(g.Sessions) > 0 {
			t.Error("the node has left its gateway")
		}
		if asked != specs {
			t.Errorf("%d specs were asked for %d times", specs, asked)
		}
	})
}

// TestGatewayLargeSpecOnSlowLine: a large spec may take minutes, also when it waits for others. One
// whose answer does not begin is asked for again soon.
func TestGatewayLargeSpecOnSlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		answer, err := frame.Append(nil, &frame.Answer{Type: frame.TypeSpec, Job: &freeslot.Job{Service: "s", Payload: json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}})
		if err != nil {
			t.Fatal(err)
		}
		var silent atomic.Bool
		g.Bulk = func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if silent.Load() {
				<-r.Context().Done()
				return
			}
			for part := range slices.Chunk(answer, 10_000) {
				_, _ = w.Write(part)
				time.Sleep(time.Second) // in virtual time
			}
		}
		s := startScriptedStore(t, &p, Config{Gateway: "ws://a"})
		peer := g.Session()
		spec := func() <-chan error {
			done := gatewaytest.Async(func() error { _, _, err := s.Spec(t.Context(), "j"); return err })
			peer.Send(&frame.Answer{Type: frame.TypeSpec, ID: peer.Next(frame.TypeSpec).ID, Large: true})
			return done
		}
		for _, done := range []<-chan error{spec(), spec(), spec()} {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		silent.Store(true)
		begin := time.Now()
		if err := <-spec(); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != bulkTimeout {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
	})
}

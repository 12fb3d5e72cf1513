package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
)

// silent opens connections that say no hello, and returns how many of them were let in.
func (s *server) silent(token string, count int) int {
	var in atomic.Int64
	var all sync.WaitGroup
	for range count {
		all.Go(func() {
			if s.handshake(
				func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) },
			).StatusCode == http.StatusSwitchingProtocols {
				in.Add(1)
			}
		})
	}
	all.Wait()
	return int(in.Load())
}

// TestSilentHandshakes: connections of one token that say nothing keep no other agent out, nor a
// fleet with one token whose agents come all at once, and are far away.
func TestSilentHandshakes(t *testing.T) {
	t.Parallel()
	for name, fleet := range map[string]bool{"agents": false, "fleet": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, 1000)
				if in := s.silent("gpu", 2*maxPending); in != maxPending/2 {
					t.Errorf("%d silent connections of one token were let in, want %d", in, maxPending/2)
				}
				if fleet {
					connectFleet(t, s, 500)
					return
				}
				for i := range 60 {
					s.connectAs("more", fmt.Sprint("more-", i), 1)
				}
				if s.pending < maxPending/2 {
					t.Errorf("%d connections are pending: the silent ones have gone", s.pending)
				}
			})
		})
	}
}

// connectFleet connects agents at the same time, which try again as agents do.
func connectFleet(t *testing.T, s *server, agents int) {
	t.Helper()
	var all sync.WaitGroup
	var refused atomic.Int64
	begin := time.Now()
	for i := range agents {
		all.Go(func() {
			for {
				conn, resp, err := websocket.Dial(t.Context(), "ws://gateway"+frame.Path, &websocket.DialOptions{
					HTTPClient: s.client, HTTPHeader: http.Header{"Authorization": {"Bearer more"}},
					Subprotocols: []string{frame.Protocol},
				})
				if err == nil {
					p := &peer{t: t, conn: conn}
					wait(t.Context(), 100*time.Millisecond) // the way of the hello
					p.send(fmt.Sprintf(`{"type":"hello","node":"more-%d","epoch":"e1","connection":1}`, i))
					p.welcomed()
					t.Cleanup(func() { _ = conn.CloseNow() })
					return
				}
				if resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
					t.Errorf("agent %d: %v; want a place, or 503", i, err)
					return
				}
				refused.Add(1)
				wait(t.Context(), refusedRetryAfter)
			}
		})
	}
	all.Wait()
	t.Logf("%d agents were connected after %s, and %d handshakes were refused", agents, time.Since(begin), refused.Load())
}

// TestLine: handshakes of a fleet wait in order, and only a bounded number of them. Drain ends the
// line.
func TestLine(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		s.silent("gpu", maxPending/2)
		s.silent("more", pendingOfOwner)
		outcome := make(chan int, waitingOfOwner)
		for range waitingOfOwner {
			go func() {
				outcome <- s.handshake(func(r *http.Request) { r.Header.Set("Authorization", "Bearer more") }).StatusCode
			}()
		}
		synctest.Wait()
		if len(outcome) != 0 || s.line.Len() != waitingOfOwner {
			t.Errorf("%d handshakes wait, %d have ended; want %d and none", s.line.Len(), len(outcome), waitingOfOwner)
		}
		message := expectRefusal(
			t, s.handshake(func(r *http.Request) { r.Header.Set("Authorization", "Bearer more") }), 503, "overloaded", "",
		)
		if want := "too many agents are about to connect, 8 of them with the token more"; message != want {
			t.Errorf("message %q, want %q", message, want)
		}
		if p := s.dial("two", false); p.conn.Subprotocol() != frame.Protocol {
			t.Error("a token without connections waits")
		}
		s.mu.Lock()
		s.closeLine()
		s.mu.Unlock()
		for range waitingOfOwner {
			if status := <-outcome; status != http.StatusServiceUnavailable {
				t.Errorf("status %d of a handshake in line of a replica that stops, want 503", status)
			}
		}
		if s.line.Len() != 0 || s.owners["more"].waiting != 0 {
			t.Errorf("%d handshakes are left in the line", s.line.Len())
		}
	})
}

// TestSessionsOfNode: a token for one node has two places, and the oldest session makes room for a
// newer one. All others connect.
func TestSessionsOfNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 40)
		var mine []*peer
		for i := range 20 {
			mine = append(mine, s.hello("two", "gpu-1", fmt.Sprint("e", i), 1))
			mine[i].welcomed()
			if i >= sessionsOfNode {
				mine[i-sessionsOfNode].ends(frame.CloseReplaced)
			}
		}
		for i := range 38 {
			s.connectAs("more", fmt.Sprint("more-", i), 1)
		}
		stale := s.hello("two", "gpu-1", "e19", 1) // as old as one session, and newer than the other
		stale.welcomed()
		mine[18].ends(frame.CloseReplaced)
		stale = s.hello("two", "gpu-1", "e19", 1)
		stale.expect(`{"type":"error","code":"stale_connection","message":"…"}`)
		stale.ends(frame.CloseReplaced)
		synctest.Wait()
		if got := s.metric("freeslot_gateway_agents"); got != 40 {
			t.Errorf("%v agents, want 40", got)
		}
	})
}

// TestReplacedWithoutReading: sessions that were replaced and whose agent does not read do not
// collect.
func TestReplacedWithoutReading(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		for i := range 50 {
			s.hello("gpu", "gpu-1", fmt.Sprint("e", i), 1).welcomed()
		}
		synctest.Wait()
		if open := s.open.Len(); open > 2*sessionsOfNode+1 {
			t.Errorf("%d sessions of one node are open, want at most %d", open, 2*sessionsOfNode+1)
		}
	})
}

// TestInventedNodes: a token for any number of nodes cannot keep a full replica for itself.
func TestInventedNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, 40)
		var greedy []*peer
		for i := range 40 {
			greedy = append(greedy, s.connectAs("gpu", fmt.Sprint("gpu-", i), 1))
			wait(t.Context(), time.Millisecond)
		}
		full := s.hello("gpu", "gpu-40", "e1", 1)
		full.expect(`{"type":"error","code":"overloaded",…}`)
		full.ends(websocket.StatusTryAgainLater)
		for i := range 10 {
			s.connectAs("more", fmt.Sprint("more-", i), 1)
			greedy[39-i].ends(websocket.StatusTryAgainLater)
		}
		s.connectAs("two", "gpu-1", 1)
		if s.owners["more"].agents != 10 || s.owners["two"].agents != 1 || s.agents != 40 {
			t.Errorf(
				"%d agents of more, %d of two, %d of all; want 10, 1, 40", s.owners["more"].agents, s.owners["two"].agents,
				s.agents,
			)
		}
	})
}

// TestOwnersAreForgotten: what an owner held is given back, and nothing is left of it.
func TestOwnersAreForgotten(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		p := s.connect()
		p.send(`{"type":"heartbeat","id":1}`)
		p.expect(`{"type":"beat","id":1}`)
		s.silent("more", 3)
		_ = p.conn.Close(websocket.StatusNormalClosure, "")
		wait(t.Context(), helloTimeout+2*closeTimeout)
		synctest.Wait()
		if len(s.owners) != 0 || len(s.nodes) != 0 || s.pending != 0 || s.agents != 0 {
			t.Errorf(
				"%d owners, %d nodes, %d pending and %d agents are left, want none", len(s.owners), len(s.nodes), s.pending,
				s.agents,
			)
		}
	})
}

// TestBytesOfOwner: the sessions of one token together hold a bounded number of bytes, and each may
// have one request in any case.
func TestBytesOfOwner(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *server) {
		release := make(chan struct{})
		s.cell.spec = func(string, string, string) (*freeslot.Job, string, error) {
			<-release
			return nil, "", &freeslot.Error{Code: freeslot.CodeNotFound, Message: "none"}
		}
		p := s.connect()
		s.mu.Lock()
		s.owners["gpu"].bytes.Store(bytesOfOwner) // as if other sessions had requests
		s.mu.Unlock()
		p.send(`[{"type":"spec","id":1,"job_id":"a"},{"type":"spec","id":2,"job_id":"b"},{"type":"heartbeat","id":3}]`)
		p.expect(`{"type":"error","id":2,"code":"overloaded",…}`)
		p.expect(`{"type":"beat","id":3}`)
		close(release)
		p.expect(`{"type":"error","id":1,"code":"not_found",…}`)
		if held := s.owners["gpu"].bytes.Load(); held != bytesOfOwner {
			t.Errorf("%d bytes are held, want %d", held, bytesOfOwner)
		}
	})
}

// TestIdleSession: a session whose agent gets neither a register nor a heartbeat accepted ends, and
// one that lives or cannot reach Redis goes on.
func TestIdleSession(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		beat bool
		ends bool
	}{
		"silent":  {ends: true},
		"unknown": {err: cell.ErrUnknownNode, beat: true, ends: true},
		"in use":  {err: cell.ErrNodeInUse, beat: true, ends: true},
		"away":    {err: errors.New("redis is away"), beat: true},
		"lives":   {beat: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *server) {
				s.cell.heartbeat = func(context.Context, cell.Heartbeat, cell.Link) (cell.HeartbeatReply, error) {
					return cell.HeartbeatReply{AtMS: 100}, c.err
				}
				p := s.connect()
				begin := time.Now()
				ended := make(chan error, 1)
				go func() {
					for {
						if _, _, err := p.conn.Read(context.Background()); err != nil {
							ended <- err
							return
						}
					}
				}()
				go func() {
					for n := 1; c.beat && p.conn.Write(
						t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"type":"heartbeat","id":%d}`, n),
					) == nil; n++ {
						wait(t.Context(), testLimit/4)
					}
				}()
				select {
				case err := <-ended:
					if took := time.Since(begin); !c.ends || websocket.CloseStatus(err) != frame.CloseSilent || took < testLimit ||
						took > 2*testLimit {
						t.Errorf(
							"it ended after %s with %v, want %d after %s if it is silent: %v", took, err, frame.CloseSilent, testLimit,
							c.ends,
						)
					}
				case <-time.After(10 * testLimit):
					if c.ends {
						t.Error("the session goes on; want its end")
					}
					_ = p.conn.CloseNow()
					if err := <-ended; err == nil {
						t.Error("a read of a closed connection brings no error; want one")
					}
				}
			})
		})
	}
}

// TestNarrowedLine: a session ends when its token no longer allows what its node has registered,
// also if another connection of the agent registered it; and the agent does not come back by it.
func TestNarrowedLine(t *testing.T) {
	t.Parallel()
	for name, registers := range map[string]bool{"registered": true, "came back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, s *server) {
				node := freeslot.Node{ID: "gpu-1", MaxConcurrency: 4, Services: []freeslot.Service{{Name: "tts"}}}
				s.cell.link = func() (cell.NodeLink, error) {
					return cell.NodeLink{Epoch: "e1", Alive: true, Link: cell.Link{Token: "gpu"}}, nil
				}
				away := atomic.Bool{}
				s.cell.nodes = func(ids []string) (cell.Changes, error) {
					if away.Load() {
						return cell.Changes{}, errors.New("redis is away")
					}
					out := cell.Changes{}
					for _, id := range ids {
						state := cell.NodeState{Node: node, Epoch: "e1"}
						if state.Node.ID = id; id == "gpu-2" {
							state.Node.MaxConcurrency = 2
						}
						out.Nodes = append(out.Nodes, state)
					}
					return out, nil
				}
				p, fits := s.connect(), s.connect()
				if registers {
					p.send(
						`{"type":"register","id":1,"profile":{"max_concurrency":4,"installed_services":[{"name":"tts"}],"capabilities":{}}}`,
					)
					p.expect(`{"type":"registered","id":1}`)
				}
				away.Store(true)
				s.writeTokens("{name: gpu, nodes: [gpu-*], services: [tts], slots: 3}")
				wait(t.Context(), testLimit/2)
				away.Store(false)
				fits.send(`{"type":"heartbeat","id":1}`)
				p.expect(
					`{"type":"error","code":"permission_denied","message":"profile.max_concurrency is 4, and the token gpu allows at most 3","field":"profile.max_concurrency"}`,
				)
				p.ends(frame.CloseRights)
				back := s.hello("gpu", "gpu-1", "e1", 2)
				back.expect(`{"type":"error","code":"permission_denied",…,"field":"profile.max_concurrency"}`)
				back.ends(frame.CloseRights)
				fits.expect(`{"type":"beat","id":1}`)
				fits.send(`{"type":"heartbeat","id":2}`)
				fits.expect(`{"type":"beat","id":2}`)
			})
		})
	}
}

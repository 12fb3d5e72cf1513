package client

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// TestMoveKeepsWhatComesFirst: the candidate gets the heartbeat that was not answered. The answer
// makes it current before anything behind it is read, and what the former one sends is void.
func TestMoveKeepsWhatComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, from, to := startBetween(t)
		begin := time.Now()
		done := s.heartbeat(t)
		first := from.Session()
		first.Next(frame.TypeHeartbeat)
		second := to.Session()
		if took := time.Since(begin); took < time.Second || took > 2*time.Second {
			t.Errorf("a candidate after %s", took)
		}
		again := second.Next(frame.TypeHeartbeat)
		first.Send(&frame.Answer{Type: frame.TypeJobs, Jobs: []frame.Delivery{{Attempt: framed(1)}}})
		synctest.Wait()
		second.Send(&frame.Answer{Type: frame.TypeBeat, ID: again.ID}, &frame.Answer{Type: frame.TypeJobs, Jobs: []frame.Delivery{{Attempt: framed(2)}}})
		second.Send(&frame.Answer{Type: frame.TypeBeat, ID: second.Next(frame.TypeHeartbeat).ID}) // of the call
		synctest.Wait()
		first.Send(&frame.Answer{Type: frame.TypeJobs, Jobs: []frame.Delivery{{Attempt: framed(3)}}})
		synctest.Wait()
		found, err := s.Dispatches(t.Context(), "", "", time.Second, 9)
		if err != nil || len(found) != 2 || found[0].Attempt != id(1) || found[1].Attempt != id(2) {
			t.Errorf("%+v, %v; want no error, len(found) == 2, found[0].Attempt == id(1), found[1].Attempt == id(2)", found, err)
		}
		_, _ = s.Dispatches(t.Context(), "", "", time.Second, 9)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if code := first.End(); code != websocket.StatusNormalClosure {
			t.Error(code)
		}
	})
}

// TestMoveNot: the node stays if its own gateway answers before the candidate has a heartbeat, or
// if the candidate cannot reach Redis either.
func TestMoveNot(t *testing.T) {
	refused := func(id uint64) *frame.Answer {
		return &frame.Answer{Type: frame.TypeError, ID: id, Code: freeslot.CodeUnavailable}
	}
	t.Run("own answers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, from, to := startBetween(t)
			done := s.heartbeat(t)
			first := from.Session()
			first.Send(refused(first.Next(frame.TypeHeartbeat).ID))
			if err := <-done; err == nil {
				t.Error("a refused heartbeat is answered")
			}
			second := to.Session()
			first.Send(&frame.Answer{Type: frame.TypeBeat, ID: first.Next(frame.TypeHeartbeat).ID})
			if code := second.End(); code != websocket.StatusNormalClosure {
				t.Error(code)
			}
			<-s.beats // the answer may have named jobs
			if s.current.url.Host != from.Host {
				t.Error("the node has moved")
			}
		})
	})
	t.Run("two unavailable", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, from, to := startBetween(t)
			done := s.heartbeat(t)
			first := from.Session()
			first.Send(refused(first.Next(frame.TypeHeartbeat).ID))
			if err := <-done; err == nil {
				t.Error("a refused heartbeat is answered")
			}
			second := to.Session()
			first.Send(refused(first.Next(frame.TypeHeartbeat).ID))
			second.Send(refused(second.Next(frame.TypeHeartbeat).ID))
			second.End()
			if s.current.url.Host != from.Host {
				t.Error("the node has moved")
			}
		})
	})
}

// TestMoveForgotten: a node that was reaped while its gateway was silent moves too, and a node that
// another process has learns it from the candidate.
func TestMoveForgotten(t *testing.T) {
	for code, want := range map[freeslot.Code]error{frame.CodeUnknownNode: cell.ErrUnknownNode, frame.CodeSuperseded: cell.ErrSuperseded} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, from, to := startBetween(t)
				done := s.heartbeat(t)
				from.Session().Next(frame.TypeHeartbeat)
				second := to.Session()
				second.Send(&frame.Answer{Type: frame.TypeError, ID: second.Next(frame.TypeHeartbeat).ID, Code: code})
				if code == frame.CodeUnknownNode {
					second.Send(&frame.Answer{Type: frame.TypeError, ID: second.Next(frame.TypeHeartbeat).ID, Code: code})
				}
				err := <-done
				if code == frame.CodeSuperseded { // the call waits for the gateway that is silent
					err = <-s.heartbeat(t)
				}
				if !errors.Is(err, want) {
					t.Error(err)
				}
			})
		})
	}
}

// startBetween starts a store between two gateways, of which from has the session.
func startBetween(t *testing.T) (s *scriptedStore, from, to *gatewaytest.Gateway) {
	t.Helper()
	var p gatewaytest.Network
	from, to = gatewaytest.Serve(t, &p, "a"), gatewaytest.Serve(t, &p, "b")
	s = startScriptedStore(t, &p, Config{Gateway: "ws://a,ws://b"})
	synctest.Wait()
	if len(to.Sessions) > 0 {
		from, to = to, from
	}
	return s, from, to
}

package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/gateway/frame"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// newScriptedWorker is a worker of node-1 behind scripted gateways.
func newScriptedWorker(t *testing.T, p *gatewaytest.Network, gateway string, setup ...func(*Worker)) *Worker {
	t.Helper()
	w, err := New(Config{
		Gateway: gateway, Token: "secret", Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4}, Collectors: []Collection{},
		HeartbeatInterval: time.Hour, // but when asked for
	})
	if err != nil {
		t.Fatal(err)
	}
	openThrough(w, newFakeCell(), p)
	for _, s := range setup {
		s(w)
	}
	return w
}

// TestGatewayDuplicateAroundForget: a heartbeat's answer starts an attempt, which ends at once. Its
// delivery comes just before the next answer, with which the ledger forgets the attempt: reads have
// reached the end of the queue meanwhile. The attempt must not start again.
func TestGatewayDuplicateAroundForget(t *testing.T) {
	const rounds = 1000
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		g := gatewaytest.Serve(t, &p, "a")
		var runs atomic.Int64
		w := newScriptedWorker(t, &p, "ws://a", handle("s", func(context.Context, *Job) (any, error) { runs.Add(1); return nil, nil }))
		started := gatewaytest.Async(func() error { return w.Start(t.Context()) })
		peer := g.Session()
		peer.Send(&frame.Answer{Type: frame.TypeRegistered, ID: peer.Next(frame.TypeRegister).ID})
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		beat := func(before []*frame.Answer, start ...frame.Attempt) {
			w.requestBeat()
			answer := &frame.Answer{Type: frame.TypeBeat, ID: peer.Next(frame.TypeHeartbeat).ID, Start: start}
			peer.Send(append(before, answer)...)
		}
		beat(nil)
		job := &freeslot.Job{Service: "s"}
		for n := 1; n <= rounds && !t.Failed(); n++ {
			beat(nil, frame.Attempt(id(n)))
			peer.Send(&frame.Answer{Type: frame.TypeSpec, ID: peer.Next(frame.TypeSpec).ID, Tenant: "default", Job: job})
			peer.Send(&frame.Answer{Type: frame.TypeCompleted, ID: peer.Next(frame.TypeComplete).ID, Outcome: "completed"})
			synctest.Wait()
			for range 2 { // the second read starts behind the end of the attempt
				peer.Send(&frame.Answer{Type: frame.TypeCancel, Attempts: []frame.Attempt{frame.Attempt(id(0))}})
				synctest.Wait()
			}
			beat([]*frame.Answer{{Type: frame.TypeJobs, Jobs: []frame.Delivery{{Attempt: frame.Attempt(id(n)), Tenant: "default", Job: job}}}})
			synctest.Wait()
			if got := runs.Load(); got != int64(n) {
				t.Errorf("after round %d there were %d runs", n, got)
			}
		}
		stopped := gatewaytest.Async(func() error { return w.Stop(context.Background()) })
		for req := range peer.Requests {
			switch req.Type {
			case frame.TypeHeartbeat:
				peer.Send(&frame.Answer{Type: frame.TypeBeat, ID: req.ID})
			case frame.TypeDeregister:
				peer.Send(&frame.Answer{Type: frame.TypeDeregistered, ID: req.ID})
			default:
				t.Errorf("%+v", req)
			}
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

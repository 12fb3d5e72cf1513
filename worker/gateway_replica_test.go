package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
)

// newReplicatedWorker makes a worker that has the gateways of two replicas, a and b.
func newReplicatedWorker(t *testing.T, p *gatewaytest.Network) (*Worker, *fakeCell, map[string]*gateway.Handler) {
	t.Helper()
	f, gateways := newFakeCell(), map[string]*gateway.Handler{}
	linked := &linkedCell{fakeCell: f}
	for _, host := range []string{"a", "b"} {
		gateways[host] = serveGateway(t, p.Listen(host), linked, cell.DefaultHeartbeatLimit)
	}
	w, err := New(Config{
		Gateway: "ws://a,ws://b", Token: testToken, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 4}, Collectors: []Collection{},
	})
	if err != nil {
		t.Fatal(err)
	}
	openThrough(w, f, p)
	return w, f, gateways
}

// betweenGateways runs a test with such a worker, in virtual time.
func betweenGateways(t *testing.T, fn func(t *testing.T, w *Worker, f *fakeCell, gateways map[string]*gateway.Handler), setup ...func(*Worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		w, f, gateways := newReplicatedWorker(t, &p)
		for _, s := range setup {
			s(w)
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}()
		fn(t, w, f, gateways)
	})
}

// through is the host of the gateway by which the worker is connected, and how often it has dialled.
func through(w *Worker) (host string, dials int64) {
	return w.store.(*gatewayclient.Store).Current()
}

// TestGatewayDrains: a replica that stops sends its agents to another one. The running job goes on,
// and the next one comes at once.
func TestGatewayDrains(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	betweenGateways(t, func(t *testing.T, w *Worker, f *fakeCell, gateways map[string]*gateway.Handler) {
		begun, release = make(chan struct{}), make(chan struct{})
		running := f.assign(1, freeslot.Job{Service: "slow"})
		<-begun
		from, _ := through(w)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := gateways[from].Drain(ctx); err != nil {
			t.Error(err)
		}
		if to, dials := through(w); to == from || dials != 2 {
			t.Errorf("connected to %s after %d dials", to, dials)
		}
		begin := time.Now()
		f.end(t, f.assign(2, freeslot.Job{Service: "echo"}))
		if took := time.Since(begin); took > 100*time.Millisecond {
			t.Errorf("the next job took %s", took)
		}
		close(release)
		if comp := f.end(t, running); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want comp.State == freeslot.StateSucceeded", comp)
		}
	}, handle("echo", echo), handle("slow", func(context.Context, *Job) (any, error) { close(begun); <-release; return nil, nil }))
}

// TestGatewayWorkerSuperseded: the older of two workers of one node learns it, and does not come back.
func TestGatewayWorkerSuperseded(t *testing.T) {
	betweenGateways(t, func(t *testing.T, w *Worker, f *fakeCell, _ map[string]*gateway.Handler) {
		f.with(func() { f.epoch = cell.NewEpoch() })
		<-w.Done()
		if err := w.Err(); !errors.Is(err, ErrSuperseded) {
			t.Error(err)
		}
	})
}

// TestGatewayRights: the check says what the token may do, and registers nothing.
func TestGatewayRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p gatewaytest.Network
		f := newFakeCell()
		serveGateway(t, p.Listen("a"), &linkedCell{fakeCell: f}, 6*time.Second)
		cfg := (&Config{Gateway: "ws://a", Token: testToken, Node: freeslot.Node{ID: "node-1"}}).gateway()
		cfg.Dial, cfg.Epoch = p.Dial, cell.NewEpoch()
		m, err := gatewayclient.NewMetrics(nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := gatewayclient.New(cfg, zap.NewNop(), m)
		if err != nil {
			t.Fatal(err)
		}
		welcome, err := s.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rights := rightsOf(welcome)
		if rights.String() != "token test may be node *" || rights.HeartbeatLimit != 6*time.Second || rights.Replica != "replica-1" {
			t.Errorf("rights %+v, expected those of the test's token, and the gateway's limit and replica", rights)
		}
		if f.registered != 0 || len(f.beats) != 0 {
			t.Error("the check has done more than to ask")
		}
	})
}

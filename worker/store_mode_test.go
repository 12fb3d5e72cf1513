package worker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/gateway"
	gatewayclient "github.com/freeslot/freeslot/internal/gateway/client"
	"github.com/freeslot/freeslot/internal/testing/gatewaytest"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// throughGateway is whether all workers of this package's tests reach their cells through a gateway:
// the same tests must pass then. `make race` runs both.
var throughGateway = os.Getenv("FREESLOT_TEST_STORE") == "gateway"

// directOnly skips a test that is about the store of Redis itself.
func directOnly(t *testing.T, why string) {
	t.Helper()
	if throughGateway {
		t.Skip("without a gateway only: " + why)
	}
}

// isAway reports whether Redis did not answer: a gateway does not say more.
func isAway(err error) bool { return errors.Is(err, errRedisAway) || throughGateway && err != nil }

// testToken is that of all nodes.
const testToken = "fsn_test"

// serveGateway serves a gateway in front of the cell until the end of the test.
func serveGateway(t *testing.T, listener net.Listener, c gateway.Cell, limit time.Duration) *gateway.Handler {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	line := fmt.Sprintf("- {name: test, sha256: %x, nodes: ['*']}\n", sha256.Sum256([]byte(testToken)))
	if err := os.WriteFile(file, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := gateway.OpenTokens(file, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h, err := gateway.New(gateway.Config{
		Replica: "replica-1", Version: "test", HeartbeatLimit: limit, MaxAgents: 10,
		Cells: func(string) gateway.Cell { return c }, Tokens: tokens,
	}, zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := h.Stop(ctx); err != nil {
			t.Error(err)
		}
		_ = server.Close()
		serving.Wait()
	})
	return h
}

// behindGateway puts a gateway between a fake worker and its cell, in memory.
func behindGateway(t *testing.T, w *Worker, f *fakeCell) {
	t.Helper()
	var p gatewaytest.Network
	serveGateway(t, p.Listen("gateway"), &linkedCell{fakeCell: f}, max(2*w.cfg.HeartbeatInterval, cell.DefaultHeartbeatLimit))
	openThrough(w, f, &p)
}

// openThrough has a worker dial through the gatewaytest.Network.
func openThrough(w *Worker, f *fakeCell, p *gatewaytest.Network) {
	w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
		cfg := w.cfg.gateway()
		cfg.Epoch, cfg.Beat, cfg.Dial = w.epoch, w.requestBeat, p.Dial
		s, err := gatewayclient.New(cfg, w.cfg.Logger, w.metrics.gateway)
		if err != nil {
			return nil, nil, err
		}
		closed := func() { f.with(func() { f.closed = true }) }
		if err := s.Start(ctx); err != nil {
			closed()
			return nil, nil, err
		}
		return s, func(ctx context.Context) error { closed(); return s.Stop(ctx) }, nil
	}
}

// serveRedisGateway serves a gateway in front of the node's cell, with a replica's rights, and returns
// its URL. cfg is that of a worker without a gateway.
func serveRedisGateway(t *testing.T, redis *redistest.Target, cfg Config) string {
	t.Helper()
	index := cell.NodeCell(cfg.Node.ID, cfg.Cells)
	c, err := cell.New(cell.Config{
		Layout: cell.Layouts(cfg.KeyPrefix, cfg.Cells, redis.IsCluster())[index], Index: index, Cells: cfg.Cells, HeartbeatLimit: cfg.HeartbeatLimit,
	}, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveGateway(t, listener, c, cfg.HeartbeatLimit)
	return "ws://" + listener.Addr().String()
}

// linkedCell gives a fake cell the rules for nodes behind gateways, but for those of tokens.
type linkedCell struct {
	*fakeCell
	linkMu sync.Mutex // guards link, that of the highest connection so far
	link   cell.Link
}

func (l *linkedCell) checkLink(link cell.Link) error {
	l.linkMu.Lock()
	defer l.linkMu.Unlock()
	if link.Connection < l.link.Connection {
		return cell.ErrStaleConnection
	}
	l.link = link
	return nil
}

func (l *linkedCell) Link(context.Context, string) (cell.NodeLink, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return cell.NodeLink{}, errRedisAway
	}
	return cell.NodeLink{Epoch: l.epoch}, nil
}

func (l *linkedCell) RegisterLinked(ctx context.Context, node freeslot.Node, epoch cell.Epoch, link cell.Link, replaces cell.Epoch) (cell.Registration, error) {
	l.mu.Lock()
	third := l.epoch != "" && l.epoch != epoch && l.epoch != replaces
	l.mu.Unlock()
	if third {
		return cell.Registration{}, cell.ErrSuperseded
	}
	if err := l.checkLink(link); err != nil {
		return cell.Registration{}, err
	}
	return l.Register(ctx, node, epoch)
}

func (l *linkedCell) HeartbeatsLinked(ctx context.Context, beats []cell.LinkedHeartbeat) []cell.HeartbeatResult {
	out := make([]cell.HeartbeatResult, len(beats))
	for i, hb := range beats {
		if out[i].Err = l.checkLink(hb.Link); out[i].Err == nil {
			out[i].HeartbeatReply, out[i].Err = l.Heartbeat(ctx, hb.Heartbeat)
		}
	}
	return out
}

func (l *linkedCell) CompleteNode(ctx context.Context, comps []cell.Completion) []cell.CompletionResult {
	out := make([]cell.CompletionResult, len(comps))
	for i := range comps {
		out[i].Outcome, out[i].Err = l.Complete(ctx, comps[i])
	}
	return out
}

// CompleteNodes leaves to CompleteNode what does not end a job of the node, and all while a job waits.
func (l *linkedCell) CompleteNodes(ctx context.Context, comps []cell.Completion) ([]cell.SharedOutcome, error) {
	out := make([]cell.SharedOutcome, len(comps))
	for i := range comps {
		l.mu.Lock()
		_, owned := l.owned[comps[i].Attempt]
		plain := owned && l.epoch == comps[i].Epoch && len(l.next) == 0
		l.mu.Unlock()
		if !plain {
			continue
		}
		if _, err := l.Complete(ctx, comps[i]); err != nil {
			return nil, err
		}
		out[i] = cell.SharedCompleted
	}
	return out, nil
}

// The fake's stream stands for that of each gateway. Its entries are for the session that is there as
// they are read.
func (l *linkedCell) GatewayDispatches(ctx context.Context, _, after string, block time.Duration, limit int) ([]cell.GatewayDispatch, error) {
	found, err := l.Dispatches(ctx, "", after, block, limit)
	l.linkMu.Lock()
	defer l.linkMu.Unlock()
	out := make([]cell.GatewayDispatch, len(found))
	for i := range found {
		out[i] = cell.GatewayDispatch{Dispatch: found[i], Node: "node-1", Session: l.link.Session}
	}
	return out, err
}

func (l *linkedCell) OpenGateway(context.Context, string) error { return nil }

func (l *linkedCell) KeepGateway(context.Context, string, string) error { return nil }

func (l *linkedCell) CloseGateway(context.Context, string) error { return nil }

func (l *linkedCell) Nodes(context.Context, []string) (cell.Changes, error) {
	return cell.Changes{}, nil
}

func (l *linkedCell) OwnedSpec(ctx context.Context, _ string, _ cell.Epoch, jobID string) (*freeslot.Job, string, error) {
	return l.Spec(ctx, jobID)
}

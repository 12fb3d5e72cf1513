package worker

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

const clusterCells = 4

// newClusterReplica is a replica that knows the cell of node-1.
func newClusterReplica(t *testing.T, redis *redistest.Target, prefix string, cells int) *replica {
	t.Helper()
	i := cell.NodeCell("node-1", cells)
	c, err := cell.New(cell.Config{
		Layout: cell.Layouts(prefix, cells, redis.IsCluster())[i], Index: i, Cells: cells, HeartbeatLimit: time.Hour,
	}, redis.Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop(context.Background()) })
	// The servers of a cluster that has just begun may take longer for a first answer
	// than a call waits.
	waittest.Succeeds(t, "replies", func() error { return c.OpenReplies(t.Context(), replicaName) })
	return &replica{t: t, cell: c}
}

// connections counts the connections of node-1's agent by server.
func connections(t *testing.T, addrs []string) map[string]int {
	t.Helper()
	found := make(map[string]int)
	for _, addr := range addrs {
		admin := redistest.At("node", false, addr).Client(t)
		text, err := admin.Do(t.Context(), admin.B().Arbitrary("CLIENT", "LIST").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(regexp.MustCompile(`(?m) name=freeslot-agent-node-1 `).FindAllString(text, -1)); n > 0 {
			found[addr] = n
		}
	}
	return found
}

// clusterConfig delivers jobs by the stream alone: the heartbeats, which would repair a lost
// delivery, are too far apart.
func clusterConfig(prefix string) func(*Worker) {
	return func(w *Worker) {
		w.cfg.KeyPrefix, w.cfg.Cells, w.cfg.HeartbeatInterval = prefix, clusterCells, 10*time.Minute
	}
}

func TestClusterJobEndToEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.NewCluster(t)
	prefix := redis.Prefix(t)
	w, _ := startRedisWorker(t, redis.Target, prefix, handle("echo", echo), clusterConfig(prefix))
	r := newClusterReplica(t, redis.Target, prefix, clusterCells)
	for range 20 {
		if s := r.end(r.submit(freeslot.Job{Service: "echo", Payload: []byte(`1`)})); s.State != freeslot.StateSucceeded {
			t.Fatalf("%+v; want s.State == freeslot.StateSucceeded", s)
		}
	}
	slot, _ := r.cell.Layout().Slot()
	owner := redis.Addrs()[slot*len(redis.Addrs())/16384]
	// The servers notice the end of the start's connections a moment later.
	var got map[string]int
	waittest.Until(t, "2 connections to "+owner, func() bool {
		got = connections(t, redis.Addrs())
		return len(got) == 1 && got[owner] == 2 || throughGateway // of which none is the agent's
	}, func() any { return got })
	if err := w.Stop(context.Background()); err != nil {
		t.Fatal(err)
	}
	changes, err := r.cell.Changes(t.Context(), 0, 10)
	if err != nil || len(changes.Nodes) != 1 || !changes.Nodes[0].Gone {
		t.Fatalf("after stop: %+v, %v", changes.Nodes, err)
	}
}

// TestClusterMoves: the agent goes on reading its stream, sending heartbeats and reporting,
// whatever happens to the master of its cell.
func TestClusterMoves(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	prefix := redis.Prefix(t)
	startRedisWorker(t, redis.Target, prefix, handle("echo", echo), clusterConfig(prefix))
	r := newClusterReplica(t, redis.Target, prefix, clusterCells)
	number, _ := r.cell.Layout().Slot()
	slot := uint16(number)
	var addrs []string
	for _, p := range redis.Processes() {
		addrs = append(addrs, p.Addr())
	}
	serves := func(after string) {
		t.Helper()
		if s := r.end(r.submit(freeslot.Job{Service: "echo", Payload: []byte(`1`)})); s.State != freeslot.StateSucceeded {
			t.Fatalf("after %s: %+v", after, s)
		}
		t.Logf("after %s: connections %v", after, connections(t, addrs))
	}
	serves("the start")
	redis.Failover(slot)
	serves("a failover in good order")
	redis.MigrateSlot(slot, redis.Owner(uint16((number+6000)%16384))) // which is another master's
	serves("a migration of the slot")
}

// TestClusterMasterDies is a test of its own, because it takes a node out.
func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	prefix := redis.Prefix(t)
	startRedisWorker(t, redis.Target, prefix, handle("echo", echo), clusterConfig(prefix))
	r := newClusterReplica(t, redis.Target, prefix, clusterCells)
	number, _ := r.cell.Layout().Slot()
	job := func() {
		t.Helper()
		if s := r.end(r.submit(freeslot.Job{Service: "echo", Payload: []byte(`1`)})); s.State != freeslot.StateSucceeded {
			t.Fatalf("%+v; want s.State == freeslot.StateSucceeded", s)
		}
	}
	job()
	if err := redis.Owner(uint16(number)).Kill(); err != nil {
		t.Fatal(err)
	}
	// The failover may have lost the stream.
	waittest.Succeeds(t, "a new master", func() error { return r.cell.OpenReplies(t.Context(), replicaName) })
	r.last = ""
	job()
}

// TestCellsOnOneServer: the agent uses the keys of its cell.
func TestCellsOnOneServer(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	startRedisWorker(t, redis, prefix, handle("echo", echo), clusterConfig(prefix))
	r := newClusterReplica(t, redis, prefix, clusterCells)
	if s := r.end(r.submit(freeslot.Job{Service: "echo"})); s.State != freeslot.StateSucceeded {
		t.Fatalf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
}

// TestCellsOnSeveralServers: an agent needs the server of its own cell and no other.
func TestCellsOnSeveralServers(t *testing.T) {
	t.Parallel()
	a, b := redistest.New(t), redistest.New(t)
	own, other := a, b
	if cell.NodeCell("node-1", 2) == 1 {
		own, other = b, a
	}
	other.Kill()
	prefix := a.Prefix(t)
	startRedisWorker(t, own.Target, prefix, handle("echo", echo), func(w *Worker) {
		w.cfg.RedisURL, w.cfg.RedisURLs, w.cfg.Cells = "", []string{a.URL(), b.URL()}, 2
	})
	r := newClusterReplica(t, own.Target, prefix, 2)
	if s := r.end(r.submit(freeslot.Job{Service: "echo"})); s.State != freeslot.StateSucceeded {
		t.Fatalf("%+v; want s.State == freeslot.StateSucceeded", s)
	}
}

func TestWrongNumberOfCells(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		start := func(cells int) error {
			w, err := New(Config{RedisURL: redis.URL(), KeyPrefix: prefix, Cells: cells, Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Stop(context.Background()) }()
			return w.Start(t.Context())
		}
		// An agent with a wrong number that starts first decides nothing; the replicas decide.
		if err := start(2); err != nil {
			t.Fatal(err)
		}
		if _, err := newClusterReplica(t, redis, prefix, 4).cell.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := start(4); err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{1, 2, 5} {
			want := fmt.Sprintf("redis.cells is %d, and the data under %s was made with 4", n, prefix)
			if err := start(n); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%d cells: %v", n, err)
			}
		}
		// The refused agents have left nothing behind.
		client, found := redis.Client(t), 0
		for _, node := range client.Nodes() {
			e, err := node.Do(t.Context(), node.B().Scan().Cursor(0).Match(prefix+":nodes:*").Count(100_000).Build()).AsScanEntry()
			if err != nil && !rueidis.IsRedisNil(err) {
				t.Fatal(err)
			}
			found += len(e.Elements)
		}
		if found != 0 {
			t.Errorf("%d keys of nodes", found)
		}
	})
}

package cell

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// newSet makes the cells of a system on targets, cell i on targets[i mod len].
func newSet(t *testing.T, prefix string, n int, targets ...*redistest.Target) *Set {
	t.Helper()
	clients := make([]rueidis.Client, len(targets))
	for i, target := range targets {
		clients[i] = target.Client(t)
	}
	cells := make([]*Cell, n)
	for i, l := range Layouts(prefix, n, targets[0].IsCluster()) {
		c, err := New(Config{Layout: l, Index: i, Cells: n, Servers: len(targets), CallTimeout: patience, HeartbeatLimit: time.Hour}, clients[i%len(clients)], zaptest.NewLogger(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		cells[i] = c
	}
	return startSet(t, cells)
}

func startSet(t *testing.T, cells []*Cell) *Set {
	t.Helper()
	s := NewSet(cells...)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return s
}

// withTimeout is the same cells once more, with another timeout of calls.
func (s *Set) withTimeout(t *testing.T, timeout time.Duration) *Set {
	t.Helper()
	cells := make([]*Cell, len(s.cells))
	for i, c := range s.cells {
		cfg := c.cfg
		cfg.CallTimeout = timeout
		var err error
		if cells[i], err = New(cfg, c.client, zaptest.NewLogger(t), nil); err != nil {
			t.Fatal(err)
		}
	}
	again := startSet(t, cells)
	again.guide.Store(s.guide.Load())
	return again
}

func TestCheckSet(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		prefix := redis.Prefix(t)
		for range 2 {
			warnings, down, err := newSet(t, prefix, 4, redis).Check(t.Context())
			if err != nil || len(down) != 0 {
				t.Fatal(warnings, down, err)
			}
			// Each server is named once, however many cells it has.
			if slices.Sort(warnings); len(warnings) != len(redis.Addrs()) || len(slices.Compact(warnings)) != len(warnings) {
				t.Errorf("warnings %q", warnings)
			}
		}
		for _, n := range []int{1, 2, 8} {
			_, _, err := newSet(t, prefix, n, redis).Check(t.Context())
			want := " was made with 4" // with another number of cells nothing else is the same
			if err == nil || !strings.Contains(err.Error(), "the data under "+prefix) || !strings.Contains(strings.ReplaceAll(err.Error(), prefix+" was", " was"), want) {
				t.Errorf("%d cells: %v", n, err)
			}
		}
		if _, _, err := newSet(t, prefix, 4, redis).Check(t.Context()); err != nil {
			t.Errorf("the refused ones have spoiled it: %v", err)
		}
	})
}

func TestCheckServers(t *testing.T) {
	t.Parallel()
	a, b := redistest.New(t), redistest.New(t)
	prefix := a.Prefix(t)
	check := func(n int, targets ...*redistest.Target) (map[int]error, error) {
		t.Helper()
		_, down, err := newSet(t, prefix, n, targets...).Check(t.Context())
		return down, err
	}
	if down, err := check(4, a.Target, b.Target); err != nil || len(down) != 0 {
		t.Fatal(down, err)
	}
	if _, err := check(4, b.Target, a.Target); err == nil || !strings.Contains(err.Error(), "the server at redis.urls[0] holds the cells of redis.urls[1]") {
		t.Errorf("the other way round: %v", err)
	}
	if _, err := check(4, a.Target); err == nil || !strings.Contains(err.Error(), "redis.urls names 1 servers, and the data under "+prefix+" was spread over 2") {
		t.Errorf("one of two: %v", err)
	}
	// A server that is down is no error; all of them are.
	s := newSet(t, prefix, 4, a.Target, b.Target)
	b.Kill()
	_, down, err := s.Check(t.Context())
	if err != nil || len(down) != 2 || down[1] == nil || down[3] == nil || !strings.Contains(down[1].Error(), b.Addrs()[0]) {
		t.Errorf("one server down: %v, %v", down, err)
	}
	a.Kill()
	if _, down, err := s.Check(t.Context()); err == nil || len(down) != 4 {
		t.Errorf("all servers down: %v, %v", down, err)
	}
	// It is checked when it comes up; it has lost its data, so it is a new one.
	b.Restart()
	for {
		if _, err := s.At(1).Check(t.Context()); err == nil {
			break
		} else if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckMemberOfCluster: a node of a cluster is no standalone server, and a cell
// without a tag has no place on a cluster.
func TestCheckMemberOfCluster(t *testing.T) {
	t.Parallel()
	redis := redistest.Cluster(t)
	single := redistest.At("node", false, redis.Addrs()[0])
	if _, err := Check(t.Context(), single.Client(t), Layout{Prefix: redis.Prefix(t)}); err == nil ||
		!strings.Contains(err.Error(), "redis at "+redis.Addrs()[0]+" is a member of a cluster") {
		t.Errorf("error %v", err)
	}
	if _, err := New(Config{Layout: Layout{Prefix: redis.Prefix(t)}}, redis.Client(t), nil, nil); err == nil || !strings.Contains(err.Error(), "hash tag") {
		t.Errorf("a cell without a tag on a cluster: %v", err)
	}
}

// TestCheckBrokenCluster: hash slots without a master.
func TestCheckBrokenCluster(t *testing.T) {
	t.Parallel()
	redis := redistest.NewCluster(t)
	s := newSet(t, redis.Prefix(t), 2, redis.Target)
	if _, _, err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := redistest.At("node", false, redis.Addrs()[0]).Client(t)
	if err := first.Do(t.Context(), first.B().Arbitrary("CLUSTER", "DELSLOTS", "0").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	broken, err := New(Config{Layout: Layouts("p", 1, true)[0]}, redis.Client(t, func(o *rueidis.ClientOption) {
		o.InitAddress = redis.Addrs()[:1]
	}), zaptest.NewLogger(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for {
		err := broken.checkCluster(t.Context()) // which any of the nodes may answer
		if err != nil && strings.Contains(err.Error(), "not whole (cluster_state fail") {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

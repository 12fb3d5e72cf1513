package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// profiles reads the registered profiles of a node.
func profiles(t *testing.T, r *replica, node string) freeslot.Node {
	t.Helper()
	loaded, err := r.cell.Nodes(t.Context(), []string{node})
	if err != nil || len(loaded.Nodes) != 1 {
		t.Fatalf("node %s: %+v, %v", node, loaded, err)
	}
	return loaded.Nodes[0].Node
}

// The profile changes again and again while jobs come and go. No job is lost, runs twice or is
// interrupted, and Redis has the last profile.
func TestRedisReconfigureUnderLoad(t *testing.T) {
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	r := newReplica(t, redis, prefix)
	r.nodes = []string{"node-1"}
	var mu sync.Mutex
	runs := map[string]int{}
	handler := func(generation int) HandlerFunc {
		return func(_ context.Context, job *Job) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			runs[job.ID]++
			return generation, nil
		}
	}
	w, err := New(Config{
		RedisURL: redis.URL(), KeyPrefix: prefix, Node: nodeOf(8), HeartbeatInterval: MinHeartbeatInterval, Collectors: []Collection{}, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("s", handler(0))
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	const changes = 40
	changed := make(chan error, 1)
	go func() {
		var err error
		for i := 1; i <= changes && err == nil; i++ {
			node := nodeOf(1+i%8, "s")
			node.Labels = map[string]string{"generation": fmt.Sprint(i)}
			if i%3 == 0 {
				node.Services = append(node.Services, freeslot.Service{Name: "other", Version: "2"})
			}
			err = w.Reconfigure(t.Context(), node, map[string]HandlerFunc{"s": handler(i)})
		}
		changed <- err
	}()
	var jobs []string
	for done := false; !done || len(jobs) < 50; {
		select {
		case err := <-changed:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
		id := r.submit(freeslot.Job{Service: "s"})
		jobs = append(jobs, id)
		if s := r.end(id); s.State != freeslot.StateSucceeded || s.Failures != 0 {
			t.Fatalf("%+v; want s.State == freeslot.StateSucceeded, s.Failures == 0", s)
		}
	}
	for _, id := range jobs {
		if runs[id] != 1 {
			t.Errorf("job %s ran %d times", id, runs[id])
		}
	}
	want := nodeOf(1+changes%8, "s")
	want.Labels = map[string]string{"generation": fmt.Sprint(changes)}
	want.Pools, want.Features = []string{}, map[string]bool{}
	if diff := cmp.Diff(want, profiles(t, r, "node-1")); diff != "" {
		t.Errorf("Redis' profile (-want +got):\n%s", diff)
	}
	if err := w.SetHealthy("s", false); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the service to leave the profile", func() bool { return len(profiles(t, r, "node-1").Services) == 0 })
	if p := profiles(t, r, "node-1"); p.MaxConcurrency != want.MaxConcurrency {
		t.Errorf("%d slots", p.MaxConcurrency)
	}
}

// A job that was placed while its service was removed runs on another node, without a failure.
func TestRedisServiceLeavesWhileAJobArrives(t *testing.T) {
	redis := redistest.Shared(t)
	prefix := redis.Prefix(t)
	r := newReplica(t, redis, prefix)
	r.nodes = []string{"node-2"}
	started := func(node string, fn HandlerFunc) *Worker {
		w, err := New(Config{
			RedisURL: redis.URL(), KeyPrefix: prefix, Node: freeslot.Node{ID: node, MaxConcurrency: 1}, HeartbeatInterval: MinHeartbeatInterval, Collectors: []Collection{},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("s", fn)
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = w.Stop(context.Background()) })
		return w
	}
	first := started("node-1", says("node-1"))
	started("node-2", says("node-2"))
	if err := first.Reconfigure(t.Context(), nodeOf(1), map[string]HandlerFunc{"t": echo}); err != nil {
		t.Fatal(err)
	}
	// The replica does not know of it yet.
	id := r.submit(freeslot.Job{Service: "s"})
	s := r.end(id)
	if s.State != freeslot.StateSucceeded || s.Failures != 0 || s.Node != "node-2" || string(s.Result) != `"node-2"` {
		t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.Failures == 0, s.Node == \"node-2\", string(s.Result) == `\"node-2\"`", s)
	}
}

// After everything was deleted, and although most heartbeats bring no figures, Redis has the whole
// node again.
func TestRedisFiguresAndProfileAfterAFlush(t *testing.T) {
	redis := redistest.New(t)
	prefix := redis.Prefix(t)
	r := newReplica(t, redis.Target, prefix)
	g := &gauge{name: "x"}
	g.value.Store(7)
	w, err := New(Config{
		RedisURL: redis.URL(), KeyPrefix: prefix, Node: nodeOf(3), HeartbeatInterval: MinHeartbeatInterval,
		MetadataInterval: time.Hour, Collectors: []Collection{{Collector: g}}, Thresholds: map[string]Threshold{"x.level": {Kind: AnyChange}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Handle("s", echo)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer w.Stop(context.Background())
	admin := redis.Client(t)
	says := func(what string) {
		t.Helper()
		var raw []byte
		waittest.Until(t, "the figures "+what, func() bool {
			raw, _ = admin.Do(t.Context(), admin.B().Get().Key(prefix+":metrics:node-1").Build()).AsBytes()
			var got struct {
				Metrics map[string]map[string]int `json:"metrics"`
			}
			return json.Unmarshal(raw, &got) == nil && got.Metrics["x"]["level"] == 7
		}, func() any { return string(raw) })
	}
	says("at first")
	if err := w.Reconfigure(t.Context(), nodeOf(2), map[string]HandlerFunc{"s": echo, "t": echo}); err != nil {
		t.Fatal(err)
	}
	if err := admin.Do(t.Context(), admin.B().Flushall().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	says("after a flush")
	p := profiles(t, r, "node-1")
	p.Services = slices.SortedFunc(slices.Values(p.Services), func(a, b freeslot.Service) int { return strings.Compare(a.Name, b.Name) })
	if p.MaxConcurrency != 2 || !slices.Equal(names(p), []string{"s", "t"}) {
		t.Errorf("profile %+v", p)
	}
}

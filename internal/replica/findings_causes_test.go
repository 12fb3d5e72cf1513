package replica

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// says accepts a finding with this severity whose text begins so.
func says(severity finding.Severity, text string) func(f *finding.Finding) bool {
	return func(f *finding.Finding) bool {
		return f != nil && f.Severity == severity && strings.HasPrefix(f.Text, text) && f.SinceMS > 0 && f.Next != ""
	}
}

// TestRedisCausesFound: a server of Redis that keeps no append-only file, evicts, does not answer
// or refuses writes is told, until that is mended.
func TestRedisCausesFound(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, redistest.AppendOnly("everysec"))
	cfg := configured(t)
	cfg.Redis.URL = redis.URL()
	r, client := began(t, cfg), redis.Client(t)
	set := func(name, value string) func() {
		return func() {
			t.Helper()
			cmd := client.B().ConfigSet().ParameterValue().ParameterValue(name, value).Build()
			if err := client.Do(waittest.Context(t), cmd).Error(); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := "redis at " + redis.Addrs()[0]
	allow := func() {}
	for _, c := range []struct {
		id        string
		cause     func()
		like      func(f *finding.Finding) bool
		undoCause func()
	}{
		{
			"redis.settings.0.0", set("appendonly", "no"), says(finding.Warning, at+" keeps no append-only file"),
			set("appendonly", "yes"),
		},
		{
			"redis.settings.0.0", set("maxmemory-policy", "allkeys-lru"),
			says(finding.Critical, at+" has maxmemory-policy allkeys-lru, which deletes jobs"),
			set("maxmemory-policy", "noeviction"),
		},
		{"replica.redis", redis.Pause, says(finding.Critical, "Redis has not answered for "), redis.Resume},
		{
			"replica.writes", func() { allow = redistest.FailSaves(t, redis) },
			says(finding.Critical, "Redis refuses writes: MISCONF"), func() { allow() },
		},
	} {
		untilFound(t, r, c.id, gone)
		c.cause()
		untilFound(t, r, c.id, c.like)
		c.undoCause()
		untilFound(t, r, c.id, gone)
	}
}

// TestJobCausesFound: a fleet without nodes, jobs that wait too long, for a node that is not there,
// or because of a pause, and dead jobs are told, until that is over.
func TestJobCausesFound(t *testing.T) {
	t.Parallel()
	cfg := configured(t)
	cfg.Findings.OldestWait = time.Millisecond
	r := began(t, cfg)
	release := make(chan struct{})
	begin := func() *worker.Worker {
		t.Helper()
		w, err := worker.New(worker.Config{
			RedisURL: cfg.Redis.URL, KeyPrefix: cfg.Redis.KeyPrefix, InterruptGrace: time.Second, StopTimeout: time.Millisecond,
			Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Handle("die", func(context.Context, *worker.Job) (any, error) {
			return nil, worker.Retryable(&freeslot.JobError{Code: "boom"})
		})
		w.Handle("work", func(ctx context.Context, _ *worker.Job) (any, error) {
			select {
			case <-release:
				return "done", nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		if err := w.Start(waittest.Context(t)); err != nil {
			t.Fatal(err)
		}
		return w
	}
	ask := func(method, path, body string) string {
		t.Helper()
		got := sendBody(t, r, method, path, body, "")
		if got.status >= http.StatusBadRequest {
			t.Fatalf("%s %s is answered with %d %s", method, path, got.status, got.text)
		}
		return got.text
	}
	submit := func(job string) (id string) {
		t.Helper()
		var accepted struct {
			ID string `json:"job_id"`
		}
		if err := json.Unmarshal([]byte(ask(http.MethodPost, "/v1/jobs", job)), &accepted); err != nil || accepted.ID == "" {
			t.Fatalf("a submit gives the id %q, %v; want one", accepted.ID, err)
		}
		return accepted.ID
	}
	stop := func(w *worker.Worker) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), waittest.Limit)
		defer cancel()
		if err := w.Stop(ctx); err != nil {
			t.Errorf("stop the node: %v; want nil", err)
		}
	}
	untilFound(t, r, "nodes.none", says(finding.Critical, "no node is registered"))
	first := begin()
	untilFound(t, r, "nodes.none", gone)

	waittest.Until(t, "the replica to know the node", func() bool {
		return strings.Contains(ask(http.MethodGet, "/v1/nodes", ""), "node-1")
	})
	submit(`{"service":"work"}`)
	waits := submit(`{"service":"work"}`)
	names := []string{"work (job " + waits + ")"}
	untilFound(t, r, "queues.late", func(f *finding.Finding) bool {
		return says(finding.Warning, "1 job waits, and the oldest has waited for ")(f) && slices.Equal(f.Names, names)
	})
	stop(first)
	untilFound(t, r, "queues.unserved", func(f *finding.Finding) bool {
		return f != nil && f.Severity == finding.Critical && strings.HasSuffix(f.Text, ", and no node fits") && len(f.Names) == 1
	})
	close(release)
	second := begin()
	defer stop(second)
	untilFound(t, r, "queues.unserved", gone)
	untilFound(t, r, "queues.late", gone)

	ask(http.MethodPost, "/v1/services/work/pause", "{}")
	submit(`{"service":"work"}`)
	untilFound(t, r, "queues.paused", says(finding.Warning, "1 job waits, and none begins because something is paused"))
	ask(http.MethodPost, "/v1/services/work/resume", "{}")
	untilFound(t, r, "queues.paused", gone)

	dies := submit(`{"service":"die","max_attempts":1}`)
	untilFound(t, r, "jobs.dead", says(finding.Warning, "1 job died in the last 1h: 1 of die with boom"))
	ask(http.MethodDelete, "/v1/jobs/"+dies, "")
	untilFound(t, r, "jobs.dead", gone)
}

// beats are the nodes of a test whose agents send heartbeats.
type beats struct {
	t  *testing.T
	of *cell.Cell

	mu    sync.Mutex
	alive map[string]cell.Epoch // guarded by mu
}

// newBeats makes nodes that live as long as the test says, and sends their heartbeats until the
// test ends.
func newBeats(t *testing.T, cfg config.Replica) *beats {
	t.Helper()
	layout := cell.Layouts(cfg.Redis.KeyPrefix, cfg.Redis.Cells, false)[0]
	c, err := cell.New(cell.Config{Layout: layout, Cells: 1, HeartbeatLimit: cfg.HeartbeatLimit},
		redistest.Shared(t).Client(t), zap.NewNop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	set := cell.NewSet(c)
	if err := set.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := &beats{t: t, of: c, alive: make(map[string]cell.Epoch)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(cfg.HeartbeatLimit / 10)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				b.round(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := set.Stop(context.Background()); err != nil {
			t.Errorf("stop the cells: %v; want nil", err)
		}
	})
	return b
}

// live lets exactly these nodes live from now on.
func (b *beats) live(nodes ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.alive
	b.alive = make(map[string]cell.Epoch, len(nodes))
	for _, n := range nodes {
		b.alive[n] = was[n]
	}
}

// round sends a heartbeat of each node, or registers it.
func (b *beats) round(ctx context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for node, epoch := range b.alive {
		err := error(cell.ErrUnknownNode)
		if epoch != "" {
			_, err = b.of.Heartbeat(ctx, cell.Heartbeat{Node: node, Epoch: epoch, Now: true})
		}
		if errors.Is(err, cell.ErrUnknownNode) || errors.Is(err, cell.ErrSuperseded) {
			epoch = cell.NewEpoch()
			n := freeslot.Node{ID: node, MaxConcurrency: 1, Services: []freeslot.Service{{Name: "echo"}}}
			_, err = b.of.Register(ctx, n, epoch)
			b.alive[node] = epoch
		}
		if err != nil && ctx.Err() == nil {
			b.t.Errorf("heartbeat of %s: %v; want nil", node, err)
		}
	}
}

// TestNodeCausesFound: nodes that fall silent together keep their jobs, and that is critical until
// they are heard again. One that falls silent alone is told as lost until it is back, and as one
// that flaps if it does so again.
func TestNodeCausesFound(t *testing.T) {
	t.Parallel()
	cfg := configured(t)
	cfg.HeartbeatInterval, cfg.HeartbeatLimit, cfg.Findings.Flapping = 300*time.Millisecond, 3*time.Second, 2
	r, fleet := began(t, cfg), newBeats(t, cfg)
	var all []string
	for i := range 12 {
		all = append(all, fmt.Sprintf("n%02d", i))
	}
	fleet.live(all...)
	untilFound(t, r, "nodes.none", gone)
	untilFound(t, r, "nodes.silent", gone)
	fleet.live()
	untilFound(t, r, "nodes.silent", func(f *finding.Finding) bool {
		return f != nil && f.Severity == finding.Critical && len(f.Names) > 3 && strings.HasSuffix(f.Text, "; too many at once, so they keep their jobs for now")
	})
	fleet.live(all...)
	untilFound(t, r, "nodes.silent", gone)

	one := func(f *finding.Finding) bool {
		return f != nil && f.Severity == finding.Warning && slices.Contains(f.Names, all[0])
	}
	fleet.live(all[1:]...)
	untilFound(t, r, "nodes.lost", one)
	fleet.live(all...)
	untilFound(t, r, "nodes.lost", gone)
	fleet.live(all[1:]...)
	untilFound(t, r, "nodes.flapping", one)
}

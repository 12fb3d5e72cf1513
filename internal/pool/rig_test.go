package pool

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/rueidis"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// patience bounds a single call.
const patience = waittest.Limit

// never happens by itself.
const neverCompare = time.Hour

// rig is the first cell of a system, and a way around it.
type rig struct {
	*scripttest.Rig
	t      testing.TB
	client rueidis.Client
	store  *Store
	keys   keys
}

func newRig(t testing.TB, redis *redistest.Target) *rig {
	t.Helper()
	return rigOn(t, scripttest.NewRig(t, redis))
}

func rigOn(t testing.TB, r *scripttest.Rig) *rig {
	store := NewStore(r.Runner)
	return &rig{Rig: r, t: t, client: r.Redis.Client(t), store: store, keys: store.keys}
}

// newStore is another store of the same cell.
func (r *rig) newStore(timeout time.Duration) *Store {
	r.t.Helper()
	cfg := script.Config{Layout: r.Layout(), CallTimeout: timeout}
	return NewStore(script.NewRunner(cfg, r.Redis.Client(r.t), zaptest.NewLogger(r.t), nil))
}

// replica is a follower with what it was told.
type replica struct {
	*Follower
	registry *prometheus.Registry
	// told gets one configuration a call of OnChange.
	told chan *selection.Config
}

// follow starts a follower that is stopped at the end of the test.
func (r *rig) follow(cfg Config) *replica {
	r.t.Helper()
	f := r.newReplica(cfg, patience)
	if err := f.Start(deadline(r.t)); err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *rig) newReplica(cfg Config, timeout time.Duration) *replica {
	r.t.Helper()
	f := &replica{registry: prometheus.NewRegistry(), told: make(chan *selection.Config, 1<<12)}
	cfg.OnChange = func(c *selection.Config) { f.told <- c }
	f.Follower = New(cfg, r.newStore(timeout), r.Redis.Client(r.t), zaptest.NewLogger(r.t), f.registry)
	r.t.Cleanup(func() {
		if err := f.Stop(deadline(r.t)); err != nil {
			r.t.Error(err)
		}
	})
	return f
}

func deadline(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	return waittest.Receive(t, what, ch)
}

// flush empties every server of the target.
func (r *rig) flush() {
	r.t.Helper()
	for _, node := range r.client.Nodes() {
		if err := node.Do(deadline(r.t), node.B().Flushall().Build()).Error(); err != nil {
			r.t.Fatal(err)
		}
	}
}

// apply puts a configuration in force that must be new.
func (r *rig) apply(seen uint64, cfg *selection.Config) Outcome {
	r.t.Helper()
	out, err := r.store.Apply(deadline(r.t), Change{Seen: seen, Config: cfg, Author: "test"})
	if err != nil || out.Unchanged {
		r.t.Fatalf("apply: %+v, %v", out, err)
	}
	return out
}

func (f *replica) sync(t testing.TB) State {
	t.Helper()
	if err := f.Sync(deadline(t)); err != nil {
		t.Fatal(err)
	}
	return f.Current()
}

// pools makes a configuration whose pools have explicit members only.
func pools(ids ...string) *selection.Config {
	cfg := &selection.Config{Enabled: true}
	for _, id := range ids {
		cfg.Pools = append(cfg.Pools, selection.Pool{ID: id})
	}
	return cfg
}

func text(cfg *selection.Config) string {
	if cfg == nil {
		return "nothing"
	}
	return string(Encode(cfg))
}

// group runs f for each of n at once.
func group(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

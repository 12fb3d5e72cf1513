package embed_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/embed"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
	"github.com/freeslot/freeslot/worker"
)

// The tests run with the rights that docs/embed.md names.
func TestMain(m *testing.M) { acltest.Main(m, script.RoleReplica, replica.Access()...) }

// patience bounds a single call.
const patience = waittest.Limit

func deadline(t *testing.T) context.Context {
	t.Helper()
	return waittest.Context(t)
}

// fleet is a node on a part of a Redis of its own. Service "reverse" reverses its payload, "talk"
// reports progress and goes on until it is cancelled, "hold" until that or release.
type fleet struct {
	t       *testing.T
	cfg     embed.Config
	release func()
	// runs counts the calls of "reverse".
	runs chan struct{}
}

func newFleet(t *testing.T, slots int) *fleet {
	t.Helper()
	redis := redistest.Shared(t)
	f := &fleet{t: t, runs: make(chan struct{}, 10_000)}
	f.cfg = embed.Config{RedisURL: redis.URL(), KeyPrefix: redis.Prefix(t)}
	redis.Age(t, f.cfg.KeyPrefix+":version:nodes")
	w, err := worker.New(worker.Config{
		RedisURL: redis.AdminURL(), KeyPrefix: f.cfg.KeyPrefix,
		Node: freeslot.Node{ID: "node-1", MaxConcurrency: slots}, StopTimeout: time.Millisecond,
		HeartbeatInterval: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	released, release := context.WithCancel(context.Background())
	f.release = release
	w.Handle("reverse", func(_ context.Context, job *worker.Job) (any, error) {
		f.runs <- struct{}{}
		text := slices.Clone(job.Payload)
		slices.Reverse(text)
		return text, nil
	})
	w.Handle("talk", func(ctx context.Context, job *worker.Job) (any, error) {
		if err := job.Progress([]int{1, 2}); err != nil {
			return nil, err
		}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	w.Handle("hold", func(ctx context.Context, _ *worker.Job) (any, error) {
		select {
		case <-released.Done():
			return "released", nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	if err := w.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		release()
		if err := w.Stop(deadline(t)); err != nil {
			t.Error(err)
		}
	})
	return f
}

// start starts a replica, which the end of the test stops. change, if it is not nil, changes its
// configuration.
func (f *fleet) start(change func(*embed.Config)) *embed.Replica {
	f.t.Helper()
	cfg := f.cfg
	cfg.Logger, cfg.DrainTimeout = zaptest.NewLogger(f.t, zaptest.Level(zap.WarnLevel)), 4*time.Second
	if change != nil {
		change(&cfg)
	}
	r, err := embed.New(cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := r.Start(deadline(f.t)); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		if err := r.Stop(deadline(f.t)); err != nil {
			f.t.Error(err)
		}
	})
	return r
}

func submit(t *testing.T, r *embed.Replica, job freeslot.Job) *embed.Handle {
	t.Helper()
	h, err := r.Submit(deadline(t), job)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func wait(t *testing.T, h *embed.Handle) freeslot.JobStatus {
	t.Helper()
	s, err := h.Wait(deadline(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func expectCode(t *testing.T, err error, want freeslot.Code) {
	t.Helper()
	if _, ok := errors.AsType[*freeslot.Error](err); !ok || freeslot.CodeOf(err) != want {
		t.Errorf("the error is %v, expected code %s", err, want)
	}
}

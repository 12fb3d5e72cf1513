package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/follow"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func backends(t *testing.T, suite func(t *testing.T, r *rig)) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		suite(t, newRig(t, redis))
	})
}

func (f *replica) metric(t *testing.T, name string) float64 {
	t.Helper()
	found, err := f.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range found {
		if family.GetName() == name {
			m := family.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// TestFollow: a change reaches a follower by its channel alone.
func TestFollow(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		f := r.follow(Config{Interval: neverCompare, File: pools("file")})
		if got := text(receive(t, f.told, "the first")); got != text(pools("file")) {
			t.Error(got)
		}
		if got := f.Current(); got.Version != 0 || got.Source != SourceFile || got.Problem != nil || text(got.Config) != text(pools("file")) {
			t.Errorf(`%+v; want got.Version == 0, got.Source == SourceFile, got.Problem == nil, text(got.Config) == text(pools("file"))`, got)
		}
		for i := range 5 {
			cfg := pools(fmt.Sprint("p", i))
			out := r.apply(uint64(i), cfg)
			if got := text(receive(t, f.told, "a change")); got != text(cfg) {
				t.Error(got)
			}
			if got := f.Current(); got.Version != out.Version || got.Source != SourceRedis {
				t.Errorf("%+v; want got.Version == %v, got.Source == SourceRedis", got, out.Version)
			}
		}
		if v := f.metric(t, "freeslot_config_version"); v != 5 {
			t.Error(v)
		}
		if v := f.metric(t, "freeslot_config_changes_total"); v != 6 {
			t.Error(v)
		}
		if ok, detail := f.Ready(); !ok || detail != "" {
			t.Error(ok, detail)
		}
	})
}

// TestCompare: without events a change is seen by comparison, and an edit always.
func TestCompare(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		blind := r.follow(Config{Interval: 5 * time.Millisecond, NoEvents: true})
		receive(t, blind.told, "the first")
		r.apply(0, pools("a"))
		if got := text(receive(t, blind.told, "a change")); got != text(pools("a")) {
			t.Error(got)
		}
		r.Do("SET", r.keys.document, `{"enabled":true,"pools":[{"id":"edited"}]}`)
		if got := text(receive(t, blind.told, "an edit")); got != text(pools("edited")) {
			t.Error(got)
		}
		r.Do("DEL", r.keys.document)
		if got := text(receive(t, blind.told, "a removal")); got != text(&selection.Config{}) {
			t.Error(got)
		}
	})
}

// TestBrokenDocument: it is reported and the last good one stays in force.
func TestBrokenDocument(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		f := r.follow(Config{Interval: neverCompare})
		r.apply(0, pools("a"))
		f.sync(t)
		breaks := []func(){
			func() { r.Do("SET", r.keys.document, `{"enabled":tru`) },
			func() { r.Do("SET", r.keys.document, `{"enabled":true,"pools":[{"id":"no name"}],"mod":1}`) },
			func() { r.Do("SET", r.keys.document, strings.Repeat("x", maxBytes+1)) },
			func() { r.Do("DEL", r.keys.document); r.Do("RPUSH", r.keys.document, "x") },
		}
		for i, breakIt := range breaks {
			breakIt()
			for range 2 { // it counts once
				got := f.sync(t)
				if got.Problem == nil || text(got.Config) != text(pools("a")) || got.Version != 1 {
					t.Errorf(`%d: %+v; want got.Problem != nil, text(got.Config) == text(pools("a")), got.Version == 1`, i, got)
				}
			}
			if v := f.metric(t, "freeslot_config_invalid_total"); int(v) != i+1 {
				t.Errorf("%d: invalid %v", i, v)
			}
			ok, detail := f.Ready()
			if !ok || !strings.Contains(detail, "version 1 of the configuration stays in force") {
				t.Errorf(`%d: %v %s; want ok, strings.Contains(detail, "version 1 of the configuration stays in force")`, i, ok, detail)
			}
			doc, err := r.store.Read(deadline(t))
			if err != nil || doc.Problem == nil || doc.Config != nil || doc.Version != 1 || !doc.Edited || doc.Entry == nil || doc.Entry.Author != "test" {
				t.Errorf(`%d: %+v %v; want no error, doc.Problem != nil, doc.Config == nil, doc.Version == 1, doc.Edited, doc.Entry != nil, doc.Entry.Author == "test"`, i, doc, err)
			}
		}
		r.apply(1, pools("b"))
		if got := f.sync(t); got.Problem != nil || text(got.Config) != text(pools("b")) || got.Version != 2 {
			t.Errorf(`%+v; want got.Problem == nil, text(got.Config) == text(pools("b")), got.Version == 2`, got)
		}
	})
}

// TestStartOnBroken: a replica that starts while the document is broken takes the newest
// valid version of the history, and without one its file.
func TestStartOnBroken(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		cfg := Config{Interval: neverCompare, File: pools("file")}
		r.Do("SET", r.keys.document, "{")
		if got := r.follow(cfg).Current(); got.Source != SourceFile || text(got.Config) != text(pools("file")) || got.Problem == nil {
			t.Errorf(`%+v; want got.Source == SourceFile, text(got.Config) == text(pools("file")), got.Problem != nil`, got)
		}
		r.apply(0, pools("a"))
		r.apply(1, pools("b"))
		r.Do("SET", r.keys.document, "{")
		if got := r.follow(cfg).Current(); got.Source != SourceHistory || got.Version != 2 || text(got.Config) != text(pools("b")) || got.Problem == nil {
			t.Errorf(`%+v; want got.Source == SourceHistory, got.Version == 2, text(got.Config) == text(pools("b")), got.Problem != nil`, got)
		}
		r.Do("HSET", r.keys.history, "2", "{")
		f := r.follow(cfg)
		if got := f.Current(); got.Source != SourceHistory || got.Version != 1 || text(got.Config) != text(pools("a")) {
			t.Errorf(`%+v; want got.Source == SourceHistory, got.Version == 1, text(got.Config) == text(pools("a"))`, got)
		}
		r.Do("DEL", r.keys.history)
		r.Do("SADD", r.keys.history, "x")
		if got := r.follow(cfg).Current(); got.Source != SourceFile {
			t.Errorf("%+v; want got.Source == SourceFile", got)
		}
		r.apply(2, pools("c"))
		if got := f.sync(t); got.Source != SourceRedis || got.Version != 3 || got.Problem != nil {
			t.Errorf("%+v; want got.Source == SourceRedis, got.Version == 3, got.Problem == nil", got)
		}
	})
}

// TestRollback: the content of an old version becomes a new one.
func TestRollback(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		ctx := deadline(t)
		r.apply(0, pools("a"))
		r.apply(1, pools("b"))
		out, err := r.store.Rollback(ctx, 2, 1, "alice", "b was wrong")
		if err != nil || out.Version != 3 || out.Unchanged {
			t.Fatalf("%+v %v", out, err)
		}
		doc, err := r.store.Read(ctx)
		want := ConfigEntry{Version: 3, Action: "rollback", Author: "alice", Note: "b was wrong", Restores: 1, AtMS: out.NowMS, Paused: "{}"}
		if err != nil || text(doc.Config) != text(pools("a")) || doc.Edited || doc.Entry == nil || *doc.Entry != want {
			t.Errorf("%+v %v", doc, err)
		}
		if out, err = r.store.Rollback(ctx, 3, 1, "alice", ""); err != nil || !out.Unchanged || out.Version != 3 {
			t.Errorf("%+v %v; want no error, out.Unchanged, out.Version == 3", out, err)
		}
		_, err = r.store.Rollback(ctx, 3, 9, "alice", "")
		if freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Error(err)
		}
		var conflict *ConflictError
		if _, err = r.store.Rollback(ctx, 2, 2, "alice", ""); !errors.As(err, &conflict) || conflict.Current != 3 {
			t.Error(err)
		}
		r.Do("HSET", r.keys.history, "2", `{"mode":"x"}`)
		if _, err = r.store.Rollback(ctx, 3, 2, "alice", ""); !slices.Contains(fields(err), "config.mode") {
			t.Error(err)
		}
		if _, err := r.store.Apply(ctx, Change{Seen: 3, Config: pools("a b")}); !slices.Contains(fields(err), "config.pools[0].id") {
			t.Error(err)
		}
		r.Do("SET", r.keys.document, `{"enabled":true,"pools":[{"id":"edited"}],"version":3}`)
		if doc, err := r.store.Read(ctx); err != nil || !doc.Edited || text(doc.Config) != text(pools("edited")) {
			t.Errorf(`%+v %v; want no error, doc.Edited, text(doc.Config) == text(pools("edited"))`, doc, err)
		}
	})
}

// TestOutage: the last configuration stays in force, Health says so, and what was
// changed meanwhile is there when the server answers again.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.apply(0, pools("a"))
	f := r.newReplica(Config{Interval: 5 * time.Millisecond}, 50*time.Millisecond)
	if err := f.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	receive(t, f.told, "the first")
	server.Pause()
	if err := f.Sync(deadline(t)); err == nil {
		t.Error("a server that is paused was read")
	}
	waittest.Until(t, "health tells of the outage", func() bool {
		ok, detail := f.Ready()
		return ok && strings.Contains(detail, "Redis has not answered") && strings.Contains(detail, "version 1 of the configuration stays in force")
	})
	if h := f.Health(); !h.Stale || text(h.Config) != text(pools("a")) {
		t.Errorf(`%+v; want h.Stale, text(h.Config) == text(pools("a"))`, h)
	}
	if f.metric(t, "freeslot_config_read_errors_total") == 0 {
		t.Error("no error was counted")
	}
	server.Resume()
	r.apply(1, pools("b"))
	if got := text(receive(t, f.told, "the change after the outage")); got != text(pools("b")) {
		t.Error(got)
	}
	// The server comes back empty: the file's is in force again, as it is for whoever starts now.
	server.Restart()
	if got := text(receive(t, f.told, "the end of the data")); got != text(&selection.Config{}) {
		t.Error(got)
	}
}

// TestConnectionsKilled: what is changed while the subscription is away is seen when it
// is back, without a comparison in between.
func TestConnectionsKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	replicas := []*replica{r.follow(Config{Interval: neverCompare}), r.follow(Config{Interval: neverCompare})}
	for i := range 20 {
		cfg := pools(fmt.Sprint("p", i))
		r.Do("CLIENT", "KILL", "TYPE", "pubsub")
		r.apply(uint64(i), cfg)
		for _, f := range replicas {
			for got := ""; got != text(cfg); {
				got = text(receive(t, f.told, "the change"))
			}
		}
	}
}

func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	f := r.newReplica(Config{}, 20*time.Millisecond)
	server.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := f.Start(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if ok, _ := f.Ready(); ok || f.Current().Config != nil {
		t.Error("ready without a configuration")
	}
	server.Resume()
	if err := f.Sync(deadline(t)); !errors.Is(err, follow.ErrStopped) {
		t.Error(err)
	}
}

// A replica that may start without Redis has what its file says until Redis is there.
func TestStartWithFile(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	r.apply(0, pools("redis"))
	f := r.newReplica(Config{File: pools("file"), StartPatience: 50 * time.Millisecond}, 20*time.Millisecond)
	server.Pause()
	if err := f.Start(deadline(t)); err != nil {
		t.Fatal(err)
	}
	if got := receive(t, f.told, "the file's configuration"); text(got) != text(pools("file")) {
		t.Errorf("in force: %s", text(got))
	}
	if ok, detail := f.Ready(); !ok || detail == "" {
		t.Errorf("ready %v, %q", ok, detail)
	}
	server.Resume()
	if got := receive(t, f.told, "Redis' configuration"); text(got) != text(pools("redis")) {
		t.Errorf("in force: %s", text(got))
	}
}

func TestStopTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	f := r.newReplica(Config{}, patience)
	if err := errors.Join(f.Stop(deadline(t)), f.Stop(deadline(t))); err != nil {
		t.Error(err)
	}
	if err := f.Start(deadline(t)); !errors.Is(err, follow.ErrStopped) {
		t.Error("a stopped follower starts:", err)
	}
	for range 10 {
		f := r.newReplica(Config{Interval: time.Millisecond}, patience)
		if err := f.Start(deadline(t)); err != nil {
			t.Error(err)
		}
		group(2, func(int) { _ = f.Sync(deadline(t)) })
		if err := f.Stop(deadline(t)); err != nil {
			t.Error(err)
		}
	}
}

// TestThreeReplicas: each replica is told of each change, once and in order.
func TestThreeReplicas(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		replicas := make([]*replica, 3)
		for i := range replicas {
			replicas[i] = r.follow(Config{Interval: neverCompare})
			receive(t, replicas[i].told, "the first")
		}
		for n := range 50 {
			cfg := pools(fmt.Sprint("p", n))
			r.apply(uint64(n), cfg)
			for _, f := range replicas {
				if got := receive(t, f.told, "a callback"); text(got) != text(cfg) {
					t.Errorf("told of %s, expected %s", text(got), text(cfg))
				}
			}
		}
		if n := testutil.CollectAndCount(replicas[0].metrics.changes); n != 1 {
			t.Error(n)
		}
	})
}

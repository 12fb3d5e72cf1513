package lock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestReplicated: a grant counts, and a renewal moves the end, only when a replica has it; also a
// grant by hand-over, and that of an heir.
func TestReplicated(t *testing.T) {
	t.Parallel()
	redis := redistest.NewWithReplicas(t, 1)
	ctx, prefix := bounded(t), redis.Prefix(t)
	replicated := func(timeout time.Duration) *Manager {
		return newManager(t, redis.Target, prefix, func(o *Options) { o.Replicas, o.ReplicationTimeout = 1, timeout })
	}
	x, y, brief := replicated(time.Minute), replicated(time.Minute), replicated(100*time.Millisecond)
	replica := func(field string) string {
		text, err := redistest.Ask(ctx, redis.Replicas[0].Addrs()[0], "HGET", prefix+":held:k", field).ToString()
		if err != nil {
			t.Error(err)
		}
		return text
	}
	cfg := Config{Key: "k", Lease: time.Hour}
	held, err := get(t, x, cfg).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if owner := replica("acquisition"); owner != held.a.id() {
		t.Error(owner)
	}
	heir, other := waitsBehind(ctx, t, x, cfg), waits(ctx, t, y, cfg)
	for _, next := range []<-chan *Held{heir, other} {
		if err := held.Unlock(ctx); err != nil {
			t.Fatal(err)
		}
		held = receive(t, next)
		if owner := replica("acquisition"); owner != held.a.id() || replica("grant") != "" {
			t.Errorf("%s, grant %q", owner, replica("grant"))
		}
	}
	if err := held.Unlock(ctx); err != nil {
		t.Fatal(err)
	}
	// It asks again where a replica is slow.
	held, err = get(t, brief, Config{Key: "k", Lease: 2 * time.Second, Renewal: 100 * time.Millisecond}).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	redis.Replicas[0].Pause()
	if h, err := get(t, brief, Config{Key: "new"}).TryLock(ctx, 0); !errors.Is(err, script.ErrNotReplicated) {
		t.Error(h, err)
	}
	tries(t, "the deadline, and what failed", func(wait time.Duration) error {
		short, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		_, err := get(t, brief, Config{Key: "new2"}).Lock(short)
		return err
	}, context.DeadlineExceeded, script.ErrNotReplicated)
	receive(t, held.Context().Done()) // no renewal is confirmed
	if cause := context.Cause(held.Context()); !errors.Is(cause, ErrExpired) {
		t.Error(cause)
	}
	if err := held.Unlock(ctx); !errors.Is(err, ErrExpired) {
		t.Error(err)
	}
	noneHeld(t, redis.Target, prefix) // what was not confirmed is given back
	late := make(chan error, 1)
	go func() {
		h, err := get(t, brief, cfg).Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		late <- err
	}()
	await(t, "the grant", func() bool { return slices.Contains(keysOf(t, redis.Target, prefix), "held:k") })
	redis.Replicas[0].Resume()
	if err := receive(t, late); err != nil {
		t.Error(err)
	}
	noneHeld(t, redis.Target, prefix)
}

// waitsBehind waits for a lock that another one of the process holds.
func waitsBehind(ctx context.Context, t *testing.T, m *Manager, cfg Config) <-chan *Held {
	t.Helper()
	out := make(chan *Held, 1)
	go func() {
		h, err := get(t, m, cfg).Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		out <- h
	}()
	await(t, "the waiter", func() bool { return behind(m, cfg.Key) == 1 })
	return out
}

// TestSlotMigration: while the keys of a hash slot are on two servers holds are looked at, renewed
// and given back; what needs keys that are not there yet is done when the slot has moved.
func TestSlotMigration(t *testing.T) {
	t.Parallel()
	redis := redistest.NewReplicaCluster(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m := newManager(t, redis.Target, prefix)
	names := []string{"a"}
	for name := "b"; len(names) < 4; name += "b" {
		if script.CellOf(name, tags) == script.CellOf("a", tags) {
			names = append(names, name)
		}
	}
	all := make([]*Held, len(names))
	for i, name := range names {
		all[i] = take(t, m, Config{Key: name, Renewal: quick, WatchdogPeriod: quick, AlertThreshold: 1})
	}
	g := all[0].a.group
	number, _ := g.keys.layout.Slot()
	slot := uint16(number)
	to := redis.Processes()[0]
	if redis.Owner(slot) == to {
		to = redis.Processes()[1]
	}
	redis.BeginMigration(slot, to, g.keys.held(names[0]), g.keys.held(names[2]))
	for _, h := range all { // each is renewed twice from here
		for range 2 {
			before := h.a.renewed.Load()
			await(t, "a renewal", func() bool { return h.a.renewed.Load() > before })
		}
	}
	acquisitions := make([]*acquisition, len(all))
	for i, h := range all {
		acquisitions[i] = h.a
	}
	looked, err := g.renew(ctx, acquisitions, true)
	if err != nil || len(looked) != len(all) {
		t.Fatal(looked, err)
	}
	for i, got := range looked {
		if got.code != codeDone {
			t.Errorf("%s: %+v; want got.code == %v", names[i], got, codeDone)
		}
	}
	free := "c"
	for script.CellOf(free, tags) != script.CellOf("a", tags) {
		free += "c"
	}
	late := make(chan error, 1)
	go func() {
		h, err := get(t, m, Config{Key: free}).Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		late <- err
	}()
	unlocked := make(chan error, 1)
	go func() { unlocked <- all[1].Unlock(ctx) }()
	redis.MigrateSlot(slot, to)
	if err := receive(t, late); err != nil {
		t.Error(err)
	}
	if err := receive(t, unlocked); err != nil {
		t.Log("given back in the background:", err)
	}
	for _, i := range []int{0, 2, 3} {
		if err := all[i].Context().Err(); err != nil {
			t.Error(names[i], context.Cause(all[i].Context()))
		}
		if err := all[i].Unlock(ctx); err != nil {
			t.Error(err)
		}
	}
	noneHeld(t, redis.Target, prefix)
}

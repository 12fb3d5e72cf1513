package server

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/lock"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// someLocks answers with these locks.
type someLocks struct {
	locks
	all []lock.State
}

func (s *someLocks) List(context.Context, string, int) ([]lock.State, string, error) {
	return s.all, "", nil
}

// TestUnrenewed: which locks count, by what their records hold.
func TestUnrenewed(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	one := func(key string, left time.Duration) lock.State {
		return lock.State{Key: key, Holder: "h:1", Token: 7, Left: left, Lease: 40 * time.Second, Renewed: at, Waiting: 2}
	}
	granted, revoked := one("granted", time.Second), one("revoked", time.Second)
	granted.Renewed, revoked.Revoked = time.Time{}, "deploy"
	source := &someLocks{all: []lock.State{one("new", 11*time.Second), granted, revoked, {Key: "damaged", Problem: "layout 2"}}}
	look := unrenewed(source, 0.75).Look
	if got, err := look(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("found %+v, %v; want nothing", got, err)
	}
	source.all = append(source.all, one("old", 10*time.Second), one("older", time.Second))
	source.all[5].Renewed = at.Add(-time.Second)
	got, err := look(t.Context())
	const want = `2 held locks are not renewed, longest "older" of h:1, last 39s ago; 4 processes wait for them`
	if err != nil || len(got) != 1 || got[0].Text != want || got[0].SinceMS != at.UnixMilli()+29_000 ||
		strings.Join(got[0].Names, " ") != "old older" {
		t.Errorf("found %+v, %v; want %s", got, err, want)
	}
	if got, err := unrenewed(source, 0).Look(t.Context()); len(got) != 0 || err != nil {
		t.Errorf("with a share of 0 found %+v, %v; want nothing", got, err)
	}
}

// TestUnrenewedOnRedis: the lock of a process that has ended without giving it back is found before
// its lease is over, until an operator releases it. The lock of a process that lives is not.
func TestUnrenewedOnRedis(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := waittest.Context(t), redis.Prefix(t)
	hold := func(key string, lease time.Duration) *lock.Manager {
		t.Helper()
		m, err := lock.New(lock.Options{RedisURL: redis.AdminURL(), KeyPrefix: prefix})
		if err == nil {
			err = m.Start(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Stop(context.Background()) })
		l, err := m.Get(lock.Config{Key: key, Lease: lease})
		if err == nil {
			_, err = l.Lock(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	admin := lock.NewAdmin(redis.RoleClient(t), prefix, false, zap.NewNop())
	hold("lives", time.Minute)
	dies := hold("dies", 20*time.Second)
	waittest.Until(t, "both locks in the listing", func() bool {
		all, _, err := admin.List(ctx, "", 5)
		return err == nil && len(all) == 2
	})
	if err := dies.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	// From a fifth of the lease on: sooner than the default, which shows the same.
	look := unrenewed(admin, 0.2).Look
	waittest.Until(t, "a lock without renewal", func() bool {
		got, err := look(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return len(got) == 1 && strings.Join(got[0].Names, " ") == "dies"
	})
	if _, err := admin.Revoke(ctx, lock.Revocation{Key: "dies", Operator: "ann", Reason: "its process died", Now: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := look(ctx); len(got) != 0 || err != nil {
		t.Errorf("after its release found %+v, %v; want nothing", got, err)
	}
}

package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func newAdmin(t *testing.T, redis *redistest.Target, prefix string) *Admin {
	t.Helper()
	return NewAdmin(redis.Client(t), prefix, redis.IsCluster(), zaptest.NewLogger(t))
}

func codeOf(err error) freeslot.Code {
	var e *freeslot.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// TestList: every lock that is held for a while is on some page, and so is one that is awaited and
// one that is no lock any more. A short hold leaves no trace.
func TestList(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, prefix := bounded(t), redis.Prefix(t)
		m, admin, client := newManager(t, redis, prefix), newAdmin(t, redis, prefix), redis.Client(t)
		want := make([]string, 30)
		for i := range want {
			want[i] = fmt.Sprintf("tenant/%02d}:x", i)
			if _, err := get(t, m, Config{Key: want[i]}).TryLock(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 50 {
			if err := get(t, m, Config{Key: fmt.Sprint("short ", i)}).Do(ctx, func(context.Context, int64) error { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		other, cancel := context.WithCancel(ctx)
		waits := make(chan error, 1)
		go func() {
			_, err := get(t, newManager(t, redis, prefix), Config{Key: want[7]}).Lock(other)
			waits <- err
		}()
		pages := 0
		read := func() map[string]State {
			all := make(map[string]State)
			for cursor := ""; ; pages++ {
				page, next, err := admin.List(ctx, cursor, 7)
				if err != nil || len(page) > 7 {
					t.Fatalf("a page has %d locks, %v; want at most 7", len(page), err)
				}
				for _, s := range page {
					all[s.Key] = s
				}
				if cursor = next; next == "" {
					return all
				}
			}
		}
		var got map[string]State
		waittest.Until(t, "30 listed locks, one of them awaited", func() bool {
			got = read()
			return len(got) == len(want) && got[want[7]].Waiting == 1
		}, func() any { return got })
		if pages < 2 {
			t.Errorf("all is on %d page; want several", pages+1)
		}
		for _, key := range want {
			s := got[key]
			if s.Holder != m.opts.Holder || s.Token == 0 || s.Left <= 0 || s.Left > DefaultLease || s.Lease != DefaultLease ||
				s.Renewed.Before(s.Since) || time.Since(s.Since).Abs() > time.Minute {
				t.Errorf("%+v; want a lock of %s with a lease of %s, renewed since", s, m.opts.Holder, DefaultLease)
			}
		}
		held := admin.group(want[3]).held(want[3])
		if err := client.Do(ctx, client.B().Hset().Key(held).FieldValue().FieldValue("layout", "2").Build()).Error(); err != nil {
			t.Fatal(err)
		}
		if s := read()[want[3]]; !strings.Contains(s.Problem, "layout 2") {
			t.Errorf("a damaged lock is %+v; want its problem to be told", s)
		}
		cancel()
		if err := <-waits; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		for _, bad := range []string{"x", "1", "-1@5", "0@", "64@5", "0@(5"} {
			if _, _, err := admin.List(ctx, bad, 5); codeOf(err) != freeslot.CodeInvalidArgument {
				t.Errorf("%q: %v; want codeOf(err) == freeslot.CodeInvalidArgument", bad, err)
			}
		}
	})
}

// TestListKept: a lock that was given back and stays taken for its least time is listed, although
// its process ends.
func TestListKept(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, prefix := bounded(t), redis.Prefix(t)
		m, admin := newManager(t, redis, prefix), newAdmin(t, redis, prefix)
		held, err := get(t, m, Config{Key: "report", AtLeast: DefaultLease}).Lock(ctx)
		if err == nil {
			err = held.Unlock(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := admin.List(ctx, "", 5)
		if err != nil || len(got) != 1 || !got[0].Released || !got[0].Renewed.IsZero() {
			t.Errorf("%+v, %v; want the lock that was given back", got, err)
		}
	})
}

// TestNotesEnd: entries end by themselves, so that what dead processes held goes, and nothing stays
// of idle locks.
func TestNotesEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.Shared(t)
	ctx, prefix := bounded(t), redis.Prefix(t)
	m, client := newManager(t, redis, prefix), redis.Client(t)
	g := m.groups[0]
	note := func(key string) {
		t.Helper()
		if err := g.note(ctx, []*acquisition{newAcquisition(g, Config{Key: key}.WithDefaults(), 1, "h")}); err != nil {
			t.Fatal(err)
		}
	}
	note("new")
	ttl, err := client.Do(ctx, client.B().Pttl().Key(g.keys.listed()).Build()).AsInt64()
	if err != nil || ttl <= 0 || ttl > DefaultLease.Milliseconds() {
		t.Errorf("the list lasts %d ms, %v; want at most a lease", ttl, err)
	}
	old := client.B().Zadd().Key(g.keys.listed()).ScoreMember().ScoreMember(float64(time.Now().Add(-time.Hour).UnixMicro()), "old").Build()
	if err := client.Do(ctx, old).Error(); err != nil {
		t.Fatal(err)
	}
	note("new")
	all, err := client.Do(ctx, client.B().Zrange().Key(g.keys.listed()).Min("0").Max("-1").Build()).AsStrSlice()
	if err != nil || len(all) != 1 || all[0] != "new" {
		t.Errorf("%q are listed, %v; want new alone", all, err)
	}
}

// TestStateOfQueue: the waiters are shown in the order in which they get the lock.
func TestStateOfQueue(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, prefix := bounded(t), redis.Prefix(t)
		admin, cfg := newAdmin(t, redis, prefix), Config{Key: "k", Fair: true}
		if s, err := admin.Get(ctx, "k", 10); err != nil || s.Holder != "" || s.Token != 0 || s.Waiting != 0 {
			t.Fatalf(`%+v %v; want no error, s.Holder == "", s.Token == 0, s.Waiting == 0`, s, err)
		}
		held, err := get(t, newManager(t, redis, prefix, func(o *Options) { o.Holder = "first" }), cfg).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		for i, name := range []string{"second one", "third"} {
			l := get(t, newManager(t, redis, prefix, func(o *Options) { o.Holder = name }), cfg)
			go func() {
				h, err := l.Lock(ctx)
				if err == nil {
					err = h.Unlock(ctx)
				}
				done <- err
			}()
			awaitState(t, admin, "k", func(s State) bool { return s.Waiting == int64(i+1) })
		}
		s, err := admin.Get(ctx, "k", 10)
		if err != nil || s.Holder != "first" || s.Token != held.Token() || s.Entries != 1 || len(s.Waiters) != 2 ||
			s.Waiters[0].Holder != "second one" || s.Waiters[1].Holder != "third" || s.Waiters[0].Silent < 0 || s.Waiters[0].Process == s.Waiters[1].Process {
			t.Errorf("%+v %v", s, err)
		}
		if s, err := admin.Get(ctx, "k", 1); err != nil || len(s.Waiters) != 1 || s.Waiting != 2 {
			t.Errorf("%+v %v; want no error, len(s.Waiters) == 1, s.Waiting == 2", s, err)
		}
		if err := held.Unlock(ctx); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func awaitState(t *testing.T, admin *Admin, key string, wanted func(State) bool) {
	t.Helper()
	var last State
	var failed error
	for t.Context().Err() == nil {
		ctx := bounded(t)
		if last, failed = admin.Get(ctx, key, 10); failed == nil && wanted(last) {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%+v %v", last, failed)
		}
	}
}

// TestRevoke: asked, the holder stops and gives the lock back itself; at once, its context ends
// with the next check.
func TestRevoke(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		for _, now := range []bool{false, true} {
			t.Run(fmt.Sprintf("now=%v", now), func(t *testing.T) {
				t.Parallel()
				ctx, prefix := bounded(t), redis.Prefix(t)
				admin, cfg := newAdmin(t, redis, prefix), Config{Key: "k", WatchdogPeriod: 100 * time.Millisecond}
				revocation := Revocation{Key: "k", Operator: "ops/ann", Reason: "deploy", Now: now}
				if _, err := admin.Revoke(ctx, revocation); codeOf(err) != freeslot.CodeNotFound {
					t.Fatal(err)
				}
				held, err := get(t, newManager(t, redis, prefix), cfg).Lock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				revocation.Token = held.Token() - 1
				if _, err := admin.Revoke(ctx, revocation); codeOf(err) != freeslot.CodeConflict || !strings.Contains(err.Error(), fmt.Sprint(held.Token())) {
					t.Fatal(err)
				}
				next := make(chan *Held, 1)
				go func() {
					h, err := get(t, newManager(t, redis, prefix), cfg).Lock(ctx)
					if err != nil {
						t.Error(err)
					}
					next <- h
				}()
				awaitState(t, admin, "k", func(s State) bool { return s.Waiting == 1 })
				revocation.Token = held.Token()
				if token, err := admin.Revoke(ctx, revocation); err != nil || token != held.Token() {
					t.Fatal(token, err)
				}
				select {
				case <-held.Context().Done():
				case <-ctx.Done():
					t.Fatal("the holder's context goes on")
				}
				want := ErrRevoked
				if now {
					want = nil // gone, or taken by the next one
				} else if s, err := admin.Get(ctx, "k", 0); err != nil || s.Revoked != "deploy" || s.Token != held.Token() {
					t.Errorf(`%+v %v; want no error, s.Revoked == "deploy", s.Token == held.Token()`, s, err)
				}
				if err := held.Unlock(ctx); !errors.Is(err, ErrLost) || want != nil && !errors.Is(err, want) {
					t.Error(err)
				}
				select {
				case h := <-next:
					if h == nil || h.Token() <= held.Token() {
						t.Errorf("%v after token %d", h, held.Token())
					}
				case <-ctx.Done():
					t.Fatal("the waiter did not get the lock")
				}
				entries, err := admin.Audit(ctx, 10)
				if err != nil || len(entries) != 1 {
					t.Fatal(entries, err)
				}
				if e := entries[0]; e.Key != "k" || e.Token != held.Token() || e.Operator != "ops/ann" || e.Reason != "deploy" || e.Now != now || time.Since(e.At).Abs() > time.Minute {
					t.Errorf(`%+v; want e.Key == "k", e.Token == held.Token(), e.Operator == "ops/ann", e.Reason == "deploy", e.Now == %v, time.Since(e.At).Abs() <= time.Minute`, e, now)
				}
			})
		}
	})
}

// TestAuditOrder: entries of all tags, the newest first.
func TestAuditOrder(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		ctx, prefix := bounded(t), redis.Prefix(t)
		admin, m := newAdmin(t, redis, prefix), newManager(t, redis, prefix)
		for i := range 5 {
			key := fmt.Sprintf("k%d", i)
			if _, err := get(t, m, Config{Key: key}).Lock(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := admin.Revoke(ctx, Revocation{Key: key, Reason: "r", Now: true}); err != nil {
				t.Fatal(err)
			}
			awaitState(t, admin, key, func(s State) bool { return s.Token == 0 })
		}
		entries, err := admin.Audit(ctx, 3)
		if err != nil || len(entries) != 3 || !slices.IsSortedFunc(entries, func(x, y Audited) int { return y.At.Compare(x.At) }) {
			t.Errorf("%+v %v; want no error, len(entries) == 3, slices.IsSortedFunc(entries, func(x, y Audited) int { return y.At.Compare(x.At) })", entries, err)
		}
	})
}

// TestLeft: renewals move it, and the end of the hold ends it.
func TestLeft(t *testing.T) {
	t.Parallel()
	ctx, redis := bounded(t), redistest.Shared(t)
	held, err := get(t, newManager(t, redis, redis.Prefix(t)), Config{Key: "k"}).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if left := held.Left(); left < DefaultLease-5*time.Second || left > DefaultLease {
		t.Error(left)
	}
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if left := held.Left(); left != 0 {
		t.Error(left)
	}
}

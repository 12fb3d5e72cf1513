package cell

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/redis/redistest"
)

func TestPresence(t *testing.T) {
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		c := newRig(t, redis)
		present := func(replica string, limit time.Duration, want ...string) {
			t.Helper()
			got, err := c.Present(t.Context(), replica, limit)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		}
		leave := func(replica string) {
			t.Helper()
			if err := c.Leave(t.Context(), replica, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		present("b", time.Minute, "b")
		present("a", time.Minute, "a", "b")
		present("a", time.Minute, "a", "b")
		leave("b")
		leave("b")
		present("a", time.Minute, "a")
		leave("a")
		if n, err := c.raw.Do(t.Context(), c.raw.B().Exists().Key(c.l.Replicas()).Build()).AsInt64(); err != nil || n != 0 {
			t.Errorf("%d keys are left of replicas that left, %v", n, err)
		}
	})
}

// Who does not say so any more is dropped, and when all are silent the key goes too.
func TestPresenceEnds(t *testing.T) {
	t.Parallel()
	c := newRig(t, redistest.Shared(t))
	if _, err := c.Present(t.Context(), "dead", time.Minute); err != nil {
		t.Fatal(err)
	}
	const limit = 50 * time.Millisecond // by Redis' clock
	for end := time.Now().Add(patience); ; {
		got, err := c.Present(t.Context(), "alive", limit)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 1 && got[0] == "alive" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("there are %v", got)
		}
	}
	ttl, err := c.raw.Do(t.Context(), c.raw.B().Pttl().Key(c.l.Replicas()).Build()).AsInt64()
	if err != nil || ttl > limit.Milliseconds() || ttl == -1 {
		t.Errorf("the key lives for %d ms more, %v", ttl, err)
	}
}

package replica

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/cache"
)

// TestRedisReady: what an operator is told of an outage as it goes on.
func TestRedisReady(t *testing.T) {
	t.Parallel()
	const away = "degraded: 1 of 2 cells have not answered for up to 1.5s"
	well := cache.CellHealth{Synced: true}
	for name, test := range map[string]struct {
		cells [2]cache.CellHealth
		ok    bool
		want  string
	}{
		"well":      {[2]cache.CellHealth{well, well}, true, ""},
		"just lost": {[2]cache.CellHealth{well, {Synced: true, Unreachable: true, Untracked: true}}, true, away},
		"lost":      {[2]cache.CellHealth{well, {Synced: true, Stale: true, Unreachable: true}}, true, away},
		"all lost":  {[2]cache.CellHealth{{Synced: true, Stale: true}, {Synced: true, Stale: true}}, false, "Redis has not answered for 1.5s"},
		"refused": {
			[2]cache.CellHealth{{Synced: true, Stale: true, Refusal: "WRONGPASS"}, {Synced: true, Stale: true, Refusal: "WRONGPASS"}},
			false,
			"Redis has not answered this replica's questions for 1.5s, but says WRONGPASS",
		},
		"one refuses": {
			[2]cache.CellHealth{well, {Synced: true, Unreachable: true, Refusal: "NOPERM"}},
			true,
			"degraded: 1 of 2 cells have not answered this replica's questions for up to 1.5s, but says NOPERM",
		},
		"unsubscribed": {
			[2]cache.CellHealth{well, {Synced: true, Unsubscribed: true, Untracked: true}},
			true,
			"degraded: the events of 1 of 2 cells are not heard, for a reason that the log has; what changes is seen a second later",
		},
		"untrackable": {
			[2]cache.CellHealth{{Synced: true, Untracked: true, Untrackable: true}, well},
			true,
			"degraded: Redis cannot tell of edits made by hand (client-side caching) in 1 of 2 cells; such edits are seen within a minute",
		},
		"untracked": {
			[2]cache.CellHealth{well, {Synced: true, Untracked: true}},
			true,
			"degraded: the connection that tells of edits made by hand in Redis (client-side caching) is away for 1 of 2 cells; such edits are seen once it is back",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, got := redisReady(cache.Health{Synced: true, Age: 1500 * time.Millisecond, Cells: test.cells[:]})
			if ok != test.ok || got != test.want {
				t.Errorf("%t %s\nwant %s", ok, got, test.want)
			}
		})
	}
}

func TestRedisHost(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"redis://user:secret@host:6379/1": "host:6379", "unix:///run/redis.sock": "/run/redis.sock", "::": "?",
	} {
		if got := redisHost(in); got != want {
			t.Errorf("%s: %s; want got == %v", in, got, want)
		}
	}
}

package namelist

import (
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRedisClockJumps: whether Redis' clock jumps forward or back, an operation whose holder is
// gone can be taken, and one whose holder renews it goes on.
func TestRedisClockJumps(t *testing.T) {
	t.Parallel()
	server, ahead := redistest.NewWithClock(t)
	r := newRig(t, server.Target)
	ctx := bounded(t)
	r.active("vip")
	op := r.begin("vip", OpImport, 0)
	for _, jump := range []time.Duration{29 * time.Second, 10 * time.Hour, time.Hour, 0} {
		ahead(jump)
		if err := r.Report(ctx, "c1", map[string]ClientReport{"vip": {Birth: "any"}}); err != nil {
			t.Fatal(err)
		}
		if live, _, err := r.Clients(ctx, "vip"); err != nil || len(live) != 1 {
			t.Errorf("%d clients are live, %v", len(live), err)
		}
		if h := ok[Head](t)(r.Head(ctx, "vip")); h.Lapsed() != (jump != 29*time.Second) {
			t.Errorf("at %s: %+v at %s", jump, h.Op, h.At)
		}
		op = ok[Operation](t)(r.Renew(ctx, "vip", op))
		if h := ok[Head](t)(r.Head(ctx, "vip")); h.Lapsed() {
			t.Errorf("at %s, renewed: %+v at %s", jump, h.Op, h.At)
		}
	}
	ahead(time.Minute)
	if live, _, err := r.Clients(ctx, "vip"); err != nil || len(live) != 0 {
		t.Errorf("%d clients are live, %v", len(live), err)
	}
	ok[Operation](t)(r.Take(ctx, "vip", op.ID, "r2"))
}

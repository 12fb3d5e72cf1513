package lock

import (
	"context"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestDemotion: master and replica change their roles behind one address while connections stay
// open. A hold goes on at the new master, and locks are taken and given back there.
func TestDemotion(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 1)
	address := redistest.NewAddress(t, servers.Target)
	ctx, prefix := bounded(t), servers.Prefix(t)
	m := newManager(t, address.Target, prefix)
	held := take(t, m, Config{Key: "k", Lease: 10 * time.Minute, Renewal: 50 * time.Millisecond})
	first := held.a.renewed.Load()
	waittest.Until(t, "a renewal", func() bool { return held.a.renewed.Load() > first })

	redistest.Swap(t, servers.Server, servers.Replicas[0])
	address.Lead(servers.Replicas[0].Target)
	since := int64(uptime())
	waittest.Until(t, "a renewal at the new master", func() bool { return held.a.renewed.Load() > since || !held.a.live() })
	if !held.a.live() {
		t.Fatalf("the hold has ended: %v, expected it to go on", context.Cause(held.Context()))
	}
	if err := held.Unlock(ctx); err != nil {
		t.Error(err)
	}
	if err := take(t, m, Config{Key: "other"}).Unlock(ctx); err != nil {
		t.Error(err)
	}
	noneHeld(t, servers.Replicas[0].Target, prefix)
}

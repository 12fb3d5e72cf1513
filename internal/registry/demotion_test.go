package registry

import (
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestDemotion: master and replica change their roles behind one address while connections stay
// open. A provider beats at the new master, and registers there.
func TestDemotion(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 1)
	address := redistest.NewAddress(t, servers.Target)
	before := newRig(t, address.Target)
	p := before.provider()
	before.registers(p, mine("a"))
	before.beaten("a")

	redistest.Swap(t, servers.Server, servers.Replicas[0])
	address.Lead(servers.Replicas[0].Target)
	after := newRig(t, servers.Replicas[0].Target) // reads at the new master
	after.prefix = before.prefix
	after.conn = newConn(before.prefix, servers.Replicas[0].RoleClient(t), false, zaptest.NewLogger(t), nil)
	after.beaten("a")
	await(t, "a registration", func() bool { return p.Register(bounded(t), mine("b")) == nil })
	after.beaten("b")
}

package namelist

import (
	"testing"

	"go.uber.org/zap"

	lists "github.com/freeslot/freeslot/internal/namelist"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestDemotion: master and replica change their roles behind one address while connections stay
// open. A process goes on with the list, and sees what is written at the new master, also when the
// former one has gone away.
func TestDemotion(t *testing.T) {
	t.Parallel()
	servers := redistest.NewWithReplicas(t, 1)
	address := redistest.NewAddress(t, servers.Target)
	r := newRig(t, servers.Target)
	r.url = address.URL()
	members := randomIDs(1, 100)
	r.create("vip", lists.Spec{})
	r.publish("vip", entriesOf(members...))
	l := r.open().List("vip")
	r.ready(l)
	exact(t, l, members, Yes)

	redistest.Swap(t, servers.Server, servers.Replicas[0])
	address.Lead(servers.Replicas[0].Target)
	after := newRig(t, servers.Replicas[0].Target)
	after.prefix, after.Control = r.prefix, lists.NewControl(after.control, r.prefix, false, zap.NewNop(), nil)
	after.edit("vip", add("edited"))
	waittest.Until(t, "an edit at the new master", func() bool { return l.Check(bounded(t), "edited").Verdict == Yes })
	servers.Kill()
	after.publish("vip", entriesOf(append(members, "switched")...))
	waittest.Until(t, "a switch at the new master", func() bool { return l.Check(bounded(t), "switched").Verdict == Yes })
	exact(t, l, members, Yes)
}

// TestServerURL: a list server gets the user of the control server, and each of its addresses a port.
func TestServerURL(t *testing.T) {
	t.Parallel()
	got, err := serverURL("redis://u:p@control", []string{"redis://a:1/2", "redis://b", "redis://[::1]:3"})
	if want := "redis://u:p@a:1/2?addr=b%3A6379&addr=%5B%3A%3A1%5D%3A3"; err != nil || got != want {
		t.Errorf("got %s, %v; expected %s", got, err, want)
	}
}

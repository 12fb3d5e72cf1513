package cell

import (
	"fmt"
	"slices"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestMend: whatever happened to the sets for operators, they come to agree with the profiles, and
// then stay untouched.
func TestMend(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		const few = 2 // so that it takes several calls
		for i := range 5 {
			n := testNode(fmt.Sprintf("n%d", i), 1)
			n.Pools = [][]string{nil, {"eu"}, {"eu", "gpu"}, {"us"}, {"eu"}}[i]
			r.register(n)
		}
		left := r.register(testNode("left", 1))
		if err := r.Drain(r.ctx(), "n4"); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Deregister(r.ctx(), "left", left); err != nil {
			t.Fatal(err)
		}
		eu, us, gpu := r.l.PoolMembers("eu"), r.l.PoolMembers("us"), r.l.PoolMembers("gpu")
		agree := func() bool {
			for _, set := range []string{r.l.Online(), eu, us, gpu} {
				m := r.do("TYPE", set)
				if text, _ := m.ToString(); text == "string" {
					return false
				}
			}
			return slices.Equal(r.set(r.l.Online()), []string{"n0", "n1", "n2", "n3"}) && slices.Equal(r.set(eu), []string{"n1", "n2", "n4"}) &&
				slices.Equal(r.set(us), []string{"n3"}) && slices.Equal(r.set(gpu), []string{"n2"}) && r.field(r.l.Node("n4"), "health") == "Drained"
		}
		if !agree() {
			t.Fatal("the sets do not agree to begin with")
		}
		for what, wrong := range map[string]func(){
			"nothing":        func() {},
			"deleted sets":   func() { r.do("DEL", r.l.Online(), eu, us, gpu) },
			"missing":        func() { r.do("SREM", r.l.Online(), "n0"); r.do("SREM", eu, "n2", "n4") },
			"too many":       func() { r.do("SADD", r.l.Online(), "n4", "left", "ghost"); r.do("SADD", us, "n1", "left", "ghost") },
			"other types":    func() { r.do("SET", r.l.Online(), "x"); r.do("DEL", us); r.do("SET", us, "x") },
			"a wrong health": func() { r.do("HSET", r.l.Node("n4"), "health", "Online") },
		} {
			wrong()
			mend := func() {
				if err := r.Mend(r.ctx(), few); err != nil {
					t.Fatalf("%s: %v; want no error", what, err)
				}
			}
			for range 500 {
				if mend(); agree() {
					break
				}
			}
			if !agree() {
				t.Fatalf("%s: online %v, eu %v, us %v, gpu %v", what, r.set(r.l.Online()), r.set(eu), r.set(us), r.set(gpu))
			}
			r.unchanged(what, mend, nil)
		}
		r.do("HSET", r.l.Node("n1"), "pool_ids", "{ no") // as an operator may
		if err := r.Mend(r.ctx(), 100); err != nil {
			t.Error(err)
		}
		if r.set(eu); !slices.Contains(r.set(r.l.Online()), "n1") {
			t.Error("a node whose pools cannot be read is not online any more")
		}
	})
}

// TestHealth: the field for operators follows the status.
func TestHealth(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		epoch := r.register(testNode("n1", 1))
		is := func(want string) {
			t.Helper()
			if got := r.field(r.l.Node("n1"), "health"); got != want {
				t.Errorf("health is %q, expected %q", got, want)
			}
		}
		beat := func(status freeslot.Status) {
			t.Helper()
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Status: status}); err != nil {
				t.Fatal(err)
			}
		}
		is("Online")
		beat(freeslot.StatusDraining)
		is("Draining")
		beat(freeslot.StatusOnline)
		is("Online")
		if err := r.Drain(r.ctx(), "n1"); err != nil {
			t.Fatal(err)
		}
		is("Drained")
		beat(freeslot.StatusOnline)
		is("Drained")
		epoch = r.register(testNode("n1", 1)) // another agent
		is("Drained")
		if err := r.Undrain(r.ctx(), "n1"); err != nil {
			t.Fatal(err)
		}
		is("Online")
	})
}

// TestMendIsBounded: a call holds up Redis for as many looks as the caller allows, however many
// nodes and pools there are.
func TestMendIsBounded(t *testing.T) {
	t.Parallel()
	const nodes, pools, most = 200, 20, 16
	r := newRig(t, redistest.At("alone", false, redistest.New(t).Process().Addr())) // its accounts are of this test alone
	for i := range nodes {
		n := testNode(fmt.Sprintf("n%d", i), 1)
		for j := range 3 {
			n.Pools = append(n.Pools, fmt.Sprintf("p%d", (i+j)%pools))
		}
		r.register(n)
	}
	for command, want := range map[string]int64{"hmget": 2 * most, "sismember": most + freeslot.MaxPools, "exists": 3 * most} {
		before := r.commands(command)
		if err := r.Mend(r.ctx(), most); err != nil {
			t.Fatal(err)
		}
		if n := r.commands(command) - before; n == 0 || n > want {
			t.Errorf("%d times %s, expected at most %d", n, command, want)
		}
	}
}

package cell

import (
	"slices"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestDrain: an operator's word outlasts whatever the agent says, until it is undone.
func TestDrain(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node := testNode("n1", 2)
		epoch := r.register(node)
		job := r.place("", 1, "n1")
		beat := func(status freeslot.Status) {
			t.Helper()
			hb := Heartbeat{Node: "n1", Epoch: epoch, Status: status, Running: []Attempt{{job, 1}}}
			if _, err := r.Heartbeat(r.ctx(), hb); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(when string, want freeslot.Status) {
			t.Helper()
			ch, err := r.Changes(r.ctx(), 0, 10)
			if err != nil || len(ch.Nodes) != 1 {
				t.Fatalf("%+v, %v, expected 1 node", ch, err)
			}
			if got := ch.Nodes[0].Status; got != want {
				t.Errorf("%s: %s, expected %s", when, got, want)
			}
			if online := slices.Contains(r.set(r.l.Online()), "n1"); online != (want == freeslot.StatusOnline) {
				t.Errorf("%s: %s, in the set of online nodes %v", when, want, online)
			}
			if got, refused := r.refused("n1"), want != freeslot.StatusOnline; (got == RefusedDraining) != refused {
				t.Errorf("%s: refused %q", when, got)
			}
		}
		drain := func(f func() error) {
			t.Helper()
			before := r.revision()
			if err := f(); err != nil {
				t.Fatal(err)
			}
			if r.revision() != before+1 {
				t.Errorf("revision %d, was %d", r.revision(), before)
			}
			r.unchanged("again", func() {
				if err := f(); err != nil {
					t.Error(err)
				}
			}, nil)
		}
		drain(func() error { return r.Drain(r.ctx(), "n1") })
		expect("drained", freeslot.StatusDrained)
		beat(freeslot.StatusOnline)
		expect("after a heartbeat", freeslot.StatusDrained)
		beat(freeslot.StatusDraining)
		expect("after its agent drains it too", freeslot.StatusDrained)
		node.MaxConcurrency++
		if _, err := r.Register(r.ctx(), node, epoch); err != nil {
			t.Fatal(err)
		}
		expect("with another profile", freeslot.StatusDrained)
		epoch = r.register(node)
		expect("with another agent", freeslot.StatusDrained)
		if _, err := r.Deregister(r.ctx(), "n1", epoch); err != nil {
			t.Fatal(err)
		}
		epoch = r.register(node)
		expect("with an agent that had left", freeslot.StatusDrained)
		drain(func() error { return r.Undrain(r.ctx(), "n1") })
		expect("undrained", freeslot.StatusOnline)
		beat(freeslot.StatusDraining)
		expect("drained by its agent", freeslot.StatusDraining)
		r.unchanged("undrained, which only the agent can", func() {
			if err := r.Undrain(r.ctx(), "n1"); err != nil {
				t.Error(err)
			}
		}, nil)
		if err := r.Drain(r.ctx(), "n2"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Errorf("a node that there is not: %v", err)
		}
		r.sound()
	})
}

// TestDrainOfNodeThatLeft: whether the answer to a call was lost or not confirmed, it can be repeated after the
// node has left, and is answered as it was.
func TestDrainOfNodeThatLeft(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node := testNode("n1", 2)
		leave := func(epoch Epoch) {
			t.Helper()
			if _, err := r.Deregister(r.ctx(), "n1", epoch); err != nil {
				t.Fatal(err)
			}
		}
		again := func(what string, f func() error) {
			t.Helper()
			r.unchanged(what, func() {
				if err := f(); err != nil {
					t.Errorf("%s: %v; want no error", what, err)
				}
			}, nil)
		}
		drain := func() error { return r.Drain(r.ctx(), "n1") }
		undrain := func() error { return r.Undrain(r.ctx(), "n1") }
		for what, f := range map[string]func() error{"drain": drain, "undrain": undrain} {
			if err := f(); freeslot.CodeOf(err) != freeslot.CodeNotFound {
				t.Errorf("%s of a node that never was there: %v", what, err)
			}
		}
		epoch := r.register(node)
		if err := drain(); err != nil {
			t.Fatal(err)
		}
		leave(epoch)
		again("drained again", drain)
		epoch = r.register(node)
		if got := r.field(r.l.Node("n1"), "status"); got != string(freeslot.StatusDrained) {
			t.Errorf("status %s", got)
		}
		if err := undrain(); err != nil {
			t.Fatal(err)
		}
		leave(epoch)
		again("undrained again", undrain)
		if err := drain(); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Errorf("drain of a node that has left: %v", err)
		}
		r.sound()
	})
}

// TestDrainImported: a node without an agent goes on draining when it is undrained.
func TestDrainImported(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		if _, err := r.Register(r.ctx(), testNode("n1", 2), ImportEpoch); err != nil {
			t.Fatal(err)
		}
		if err := r.Drain(r.ctx(), "n1"); err != nil {
			t.Fatal(err)
		}
		if err := r.Undrain(r.ctx(), "n1"); err != nil {
			t.Fatal(err)
		}
		if got := r.field(r.l.Node("n1"), "status"); got != string(freeslot.StatusDraining) {
			t.Errorf("status %s", got)
		}
		r.sound()
	})
}

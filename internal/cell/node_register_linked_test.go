package cell

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestRegisterLinked: a gateway registers a node over each record and each load that can be there.
func TestRegisterLinked(t *testing.T) {
	const own, replaced, third = "own", "replaced", "third"
	link := testLink(5, "mine")
	type load struct {
		present, fresh bool
		token          string // "" is a direct agent
		connection     int64
	}
	var loads []load
	for _, fresh := range []bool{true, false} {
		loads = append(loads, load{fresh: fresh}, load{present: true, fresh: fresh})
		for _, token := range []string{"mine", "other"} {
			for _, connection := range []int64{4, 5, 6, 10} { // 10 is less as a text
				loads = append(loads, load{true, fresh, token, connection})
			}
		}
	}
	want := func(record string, l load) error {
		switch {
		case record == "", record == ImportEpoch:
			return nil
		case l.fresh && l.token != "mine":
			return ErrNodeInUse
		case record == own && l.connection > link.Connection:
			return ErrStaleConnection
		case record == own:
			return nil
		case record == third:
			return ErrSuperseded
		}
		return nil
	}
	backends(t, func(t *testing.T, r *rig) {
		for i, record := range []string{"", own, replaced, third, ImportEpoch} {
			for j, l := range loads {
				what, node := fmt.Sprintf("record %q, load %+v", record, l), testNode(fmt.Sprintf("n-%d-%d", i, j), 2)
				var err error
				switch record {
				case "":
				case ImportEpoch:
					_, err = r.Import(r.ctx(), node, NodeState{Gone: true})
				default:
					_, err = r.Register(r.ctx(), node, record)
				}
				must(t, err)
				at := r.nowMS()
				if !l.fresh {
					at = 1700000000123
				}
				if record != "" {
					r.do("HSET", r.l.Node(node.ID), "registered_at_ms", strconv.FormatInt(at, 10))
				}
				if text := strconv.FormatInt(at, 10); l.present {
					if l.token != "" {
						text += " " + mustEncode(t, testLink(l.connection, l.token))
					}
					r.do("SET", r.l.Load(node.ID), text)
				}
				node.MaxConcurrency++ // so that it changes something, whatever is there
				expected := want(record, l)
				call := func() error {
					_, err := r.RegisterLinked(r.ctx(), node, own, link, replaced)
					if !errors.Is(err, expected) || (err == nil) != (expected == nil) {
						t.Errorf("%s: %v, expected %v", what, err, expected)
					}
					return err
				}
				if expected != nil {
					r.unchanged(what, func() { _ = call() }, nil)
					r.do("DEL", r.l.Load(node.ID))
				} else if call() == nil {
					if got, err := r.Link(r.ctx(), node.ID); err != nil || got != (NodeLink{Epoch: own, Link: link, Alive: true}) {
						t.Errorf("%s: connected as %+v, %v", what, got, err)
					}
				}
				_, err = r.Deregister(r.ctx(), node.ID, r.field(r.l.Node(node.ID), "epoch"))
				must(t, err)
			}
		}
		r.sound()
	})
}

// TestLateRegister: what a gateway that stood still sends late changes nothing.
func TestLateRegister(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node, before, now := testNode("n1", 2), NewEpoch(), NewEpoch()
		register := func(epoch Epoch, number int64, replaces Epoch) error {
			_, err := r.RegisterLinked(r.ctx(), node, epoch, testLink(number, "t"), replaces)
			return err
		}
		must(t, register(before, 1, ""))
		job := r.place("", 1, "n1")
		must(t, register(before, 3, ""))
		if held, _ := r.slots("n1"); held[job].epoch != before {
			t.Errorf("another connection of the epoch lost the job: %v", held)
		}
		r.unchanged("an earlier connection of the epoch", func() {
			if err := register(before, 2, ""); !errors.Is(err, ErrStaleConnection) {
				t.Error(err)
			}
		}, nil)
		reg, err := r.RegisterLinked(r.ctx(), node, now, testLink(1, "t"), before)
		if err != nil || len(reg.Lost) != 1 || reg.Lost[0] != job || reg.HeartbeatLimit != r.HeartbeatLimit() {
			t.Errorf("the agent restarted: %+v, %v", reg, err)
		}
		must(t, register(now, 1, before)) // an answer was lost
		for _, replaces := range []Epoch{"", "earlier"} {
			r.unchanged("the former epoch", func() {
				if err := register(before, 4, replaces); !errors.Is(err, ErrSuperseded) {
					t.Error(err)
				}
			}, nil)
		}
		// A direct agent takes over as ever, and leaves no link.
		direct := r.register(node)
		if got, err := r.Link(r.ctx(), "n1"); err != nil || got != (NodeLink{Epoch: direct, Alive: true}) {
			t.Errorf("%+v, %v, expected %+v", got, err, NodeLink{Epoch: direct, Alive: true})
		}
		r.cancelWaiting()
		r.sound()
	})
}

func TestRegisterLinkedRefused(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		link, odd := testLink(1, "t"), testLink(0, "t")
		r.unchanged("a refused registration", func() {
			for field, call := range map[string]func() error{
				"epoch":           func() error { _, err := r.RegisterLinked(r.ctx(), testNode("n1", 1), "", link, ""); return err },
				"replaces":        func() error { _, err := r.RegisterLinked(r.ctx(), testNode("n1", 1), "e", link, "a b"); return err },
				"connection":      func() error { _, err := r.RegisterLinked(r.ctx(), testNode("n1", 1), "e", odd, ""); return err },
				"max_concurrency": func() error { _, err := r.RegisterLinked(r.ctx(), testNode("n1", -1), "e", link, ""); return err },
			} {
				err := call()
				wantErr(t, err, freeslot.CodeInvalidArgument)
				if !strings.Contains(fmt.Sprint(err), field) {
					t.Errorf("%v does not name %s", err, field)
				}
			}
		}, nil)
	})
}

package cell

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// refused submits a job to one node alone, and says why it was not taken; "" when it was.
func (r *rig) refused(node string) RefusalReason {
	r.t.Helper()
	r.cancelWaiting() // which it would not pass
	p, err := r.Submit(r.ctx(), submission("", node))
	switch {
	case err != nil || p.Assigned == (len(p.Refusals) > 0):
		r.t.Fatalf("submit to %s: %+v, %v", node, p, err)
		return ""
	case p.Assigned:
		return ""
	default:
		return p.Refusals[0].Reason
	}
}

// TestSilence: a node gets jobs from its registration on, for as long as it beats, and again
// with the first sign of life.
func TestSilence(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node := testNode("n1", 9)
		epoch := r.register(node)
		limit := r.HeartbeatLimit().Milliseconds()
		expect := func(when string, want RefusalReason) {
			t.Helper()
			if got := r.refused("n1"); got != want {
				t.Errorf("%s: refused %q, expected %q", when, got, want)
			}
		}
		beat := func(resources string) {
			t.Helper()
			if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Resources: json.RawMessage(resources)}); err != nil {
				t.Fatal(err)
			}
		}
		expect("registered a moment ago", "")
		r.do("HSET", r.l.Node("n1"), "registered_at_ms", strconv.FormatInt(r.nowMS()-limit-1, 10))
		expect("registered long ago", RefusedSilent)
		beat(`{"cpu":1}`)
		expect("after a heartbeat", "")
		r.heard("n1", r.nowMS()-limit/2)
		expect("a little late", "")
		r.heard("n1", r.nowMS()-limit-1)
		expect("after the limit", RefusedSilent)
		for name, again := range map[string]func() Epoch{
			"the same profile":    func() Epoch { return epoch },
			"another profile":     func() Epoch { node.MaxConcurrency++; return epoch },
			"a restarted agent's": func() Epoch { epoch = NewEpoch(); return epoch },
		} {
			r.heard("n1", r.nowMS()-limit-1)
			if _, err := r.Register(r.ctx(), node, again()); err != nil {
				t.Fatal(err)
			}
			expect("registered again, "+name, "")
		}
		r.do("DEL", r.l.Load("n1"))
		r.do("HDEL", r.l.Node("n1"), "registered_at_ms")
		expect("without a trace of it", RefusedSilent)
		beat("")
		expect("after the next heartbeat", "")
		r.sound()
	})
}

// TestFiguresLast: what the last heartbeat said stays as long as the node does, so that
// whoever starts later can say since when it is silent; a new agent begins without.
func TestFiguresLast(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		node, epoch := testNode("n1", 9), NewEpoch()
		register := func() {
			t.Helper()
			if _, err := r.Register(r.ctx(), node, epoch); err != nil {
				t.Fatal(err)
			}
		}
		state := func() NodeState {
			t.Helper()
			ch, err := r.Changes(r.ctx(), 0, 10)
			if err != nil || len(ch.Nodes) != 1 {
				t.Fatalf("%+v, %v, expected 1 node", ch, err)
			}
			return ch.Nodes[0]
		}
		register()
		if s := state(); s.Resources != nil || s.LastHeartbeatMS != s.RegisteredAtMS || s.RegisteredAtMS == 0 {
			t.Errorf("registered: %+v", s)
		}
		figures := `{"text":"über 13 Zeichen und\nmehr"}`
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Resources: json.RawMessage(figures)}); err != nil {
			t.Fatal(err)
		}
		for _, change := range []func(){func() {}, func() { node.MaxConcurrency++ }} {
			change()
			before := state()
			register()
			if s := state(); string(s.Resources) != figures || s.LastHeartbeatMS < before.LastHeartbeatMS {
				t.Errorf("registered again: %+v, before %+v", s, before)
			}
		}
		epoch = NewEpoch()
		register()
		if s := state(); s.Resources != nil || s.LastHeartbeatMS != s.RegisteredAtMS {
			t.Errorf("another agent: %+v", s)
		}
	})
}

// TestEditedLoad: whatever an operator makes of the key, the node is silent until it is
// heard again, the jobs of others go on, and the node's next call mends it.
func TestEditedLoad(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("other", 999))
		ahead := r.nowMS() + time.Hour.Milliseconds() // so that a slow machine makes nobody silent
		r.heard("other", ahead)
		for name, edit := range map[string][]string{
			"a hash":         {"HSET", "a", "b"},
			"a list":         {"RPUSH", "a"},
			"empty":          {"SET", ""},
			"short":          {"SET", "17"},
			"no time":        {"SET", `{"cpu":{"percent":12}}`},
			"not a number":   {"SET", "nan"},
			"infinite":       {"SET", "inf"},
			"seconds":        {"SET", strconv.FormatInt(r.nowMS()/1000, 10) + " {}"},
			"time, no JSON":  {"SET", strconv.FormatInt(ahead, 10) + " { no"},
			"time and paste": {"SET", strconv.FormatInt(ahead, 10) + `{"cpu":1}`},
			"gone":           {"DEL"},
		} {
			for call, mend := range map[string]func(node freeslot.Node, epoch Epoch) error{
				"heartbeat": func(node freeslot.Node, epoch Epoch) error {
					_, err := r.Heartbeat(r.ctx(), Heartbeat{Node: node.ID, Epoch: epoch})
					return err
				},
				"register": func(node freeslot.Node, epoch Epoch) error {
					_, err := r.Register(r.ctx(), node, epoch)
					return err
				},
				"register, another profile": func(node freeslot.Node, epoch Epoch) error {
					node.MaxConcurrency++
					_, err := r.Register(r.ctx(), node, epoch)
					return err
				},
				"register, restarted": func(node freeslot.Node, _ Epoch) error {
					_, err := r.Register(r.ctx(), node, NewEpoch())
					return err
				},
			} {
				node := testNode("n1", 9)
				epoch := NewEpoch()
				if _, err := r.Register(r.ctx(), node, epoch); err != nil {
					t.Fatal(err)
				}
				r.cancelWaiting() // jobs that the node lost by that
				r.do("HSET", r.l.Node("n1"), "registered_at_ms", "1000000000000")
				r.do("DEL", r.l.Load("n1"))
				r.do(append([]string{edit[0], r.l.Load("n1")}, edit[1:]...)...)
				subs := []Submission{submission("", "n1"), submission("", "other"), submission("", "n1", "other"), submission("", "other", "n1")}
				got, err := r.Cell.submit(r.ctx(), encoded(t, subs...))
				if err != nil || !got[1].Assigned || !got[2].Assigned || !got[3].Assigned {
					t.Fatalf("%s: %+v, %v; want no error, got[1].Assigned, got[2].Assigned, got[3].Assigned", name, got, err)
				}
				if timed := strings.HasPrefix(name, "time"); got[0].Assigned != timed || !timed && got[0].Refusals[0].Reason != RefusedSilent {
					t.Errorf("%s: %+v; want got[0].Assigned == %v, timed or got[0].Refusals[0].Reason == RefusedSilent", name, got[0], timed)
				}
				ch, err := r.Changes(r.ctx(), 0, 10)
				if err != nil || len(ch.Nodes) != 2 || ch.Nodes[1].Broken != nil {
					t.Errorf("%s: changes: %+v, %v", name, ch, err)
				}
				if err := mend(node, epoch); err != nil {
					t.Errorf("%s: %s: %v; want no error", name, call, err)
				}
				if got := r.refused("n1"); got != "" {
					t.Errorf("%s: after %s: refused %q", name, call, got)
				}
			}
		}
	})
}

// TestEditedLoadOfALaterCandidate: the same for a node that is asked after another one.
func TestEditedLoadOfALaterCandidate(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		r.register(testNode("full", 1))
		r.place("", 1, "full")
		r.register(testNode("odd", 9))
		r.register(testNode("other", 9))
		r.do("HSET", r.l.Node("odd"), "registered_at_ms", "1000000000000")
		r.do("HSET", r.l.Load("odd"), "a", "b")
		p, err := r.Submit(r.ctx(), submission("", "full", "odd", "other"))
		if err != nil || p.Node != "other" || len(p.Refusals) != 2 || p.Refusals[1].Reason != RefusedSilent {
			t.Errorf(`%+v, %v; want no error, p.Node == "other", len(p.Refusals) == 2, p.Refusals[1].Reason == RefusedSilent`, p, err)
		}
	})
}

package cell

import (
	"errors"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
)

// TestRepeat: whoever got an error may still have been applied and calls again. What
// a header says to move on is taken out of the comparison, nothing else.
func TestRepeat(t *testing.T) {
	backends(t, func(t *testing.T, r *rig) {
		for _, replica := range []string{"r1", "r2"} {
			if err := r.OpenReplies(r.ctx(), replica); err != nil {
				t.Fatal(err)
			}
		}
		hear := r.listen()
		node, epoch := richNode("n1"), NewEpoch()
		other := r.register(testNode("n2", 4))
		submitted, ended, cancelled := submission("r1", "n1"), submission("r1", "n1"), submission("r1", "n1")
		refused := submission("r1", "n1")
		moved := func(keys ...string) func(map[string]string) {
			return func(dump map[string]string) {
				for _, k := range keys {
					delete(dump, strings.TrimPrefix(k, r.l.Prefix+":"))
				}
			}
		}
		var running []Attempt
		for _, c := range []struct {
			name string
			call func() error
			mask func(map[string]string)
			// events that a repetition publishes
			events int
		}{
			{
				"register: the time of the last heartbeat", func() error {
					reg, err := r.Register(r.ctx(), node, epoch)
					if len(reg.Lost) != 0 {
						t.Errorf("lost %v", reg.Lost)
					}
					return err
				}, moved(r.l.Load("n1")), 0,
			},
			{"submit", func() error { _, err := r.Submit(r.ctx(), submitted); return err }, nil, 0},
			{"submit, to be ended", func() error { _, err := r.Submit(r.ctx(), ended); return err }, nil, 0},
			{"submit to the last slot", func() error { _, err := r.Submit(r.ctx(), cancelled); return err }, nil, 0},
			{"submit, refused", func() error { _, err := r.Submit(r.ctx(), refused); return err }, nil, 0},
			{"attach", func() error { _, err := r.Attach(r.ctx(), "acme", submitted.JobID, "r2"); return err }, r.attachesOf(submitted.JobID), 0},
			{"progress", func() error {
				_, err := r.Progress(r.ctx(), "n1", epoch, []ProgressReport{told(submitted.JobID, 1, 1, "1")})
				return err
			}, nil, 0},
			{"cancel", func() error { _, err := r.Cancel(r.ctx(), "acme", cancelled.JobID); return err }, nil, 0},
			{"complete", func() error { _, err := r.Complete(r.ctx(), succeed("n1", epoch, ended.JobID)); return err }, nil, 0},
			{"complete, cancelled", func() error {
				comp := succeed("n1", epoch, cancelled.JobID)
				comp.State, comp.Result = freeslot.StateCancelled, nil
				_, err := r.Complete(r.ctx(), comp)
				return err
			}, nil, 0},
			{"complete, stale", func() error { _, err := r.Complete(r.ctx(), succeed("n2", other, submitted.JobID)); return err }, nil, 0},
			{
				"heartbeat: its time and the revision", func() error {
					running = []Attempt{{submitted.JobID, 1}}
					hb := Heartbeat{Node: "n1", Epoch: epoch, Running: running, Read: r.lastDispatch("n1"), Resources: []byte(`{"a":1}`)}
					_, err := r.Heartbeat(r.ctx(), hb)
					return err
				}, moved(r.l.Revisions(), r.l.Version(), r.l.Load("n1")), 1,
			},
			{
				"heartbeat, draining", func() error {
					_, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n2", Epoch: other, Status: freeslot.StatusDraining})
					return err
				}, moved(r.l.Revisions(), r.l.Version(), r.l.Load("n2")), 1,
			},
			{"heartbeat, superseded", func() error {
				if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: other}); !errors.Is(err, ErrSuperseded) {
					t.Errorf("heartbeat: %v", err)
				}
				return nil
			}, nil, 0},
			{"keep replies", func() error { return r.KeepReplies(r.ctx(), "r1", "0-1") }, moved(r.l.Replies("r1")), 0},
			{"deregister", func() error { _, err := r.Deregister(r.ctx(), "n1", epoch); return err }, nil, 0},
			{"close replies", func() error { return r.CloseReplies(r.ctx(), "r1") }, nil, 0},
		} {
			if err := c.call(); err != nil {
				t.Fatalf("%s: %v; want no error", c.name, err)
			}
			r.sound()
			hear.drain()
			for range 2 {
				r.unchanged(c.name, func() {
					if err := c.call(); err != nil {
						t.Errorf("%s again: %v", c.name, err)
					}
				}, c.mask)
				if got := hear.drain(); len(got) != c.events {
					t.Errorf("%s again: events %+v", c.name, got)
				}
			}
		}
		if s := r.status(submitted.JobID); s.State != freeslot.StateWaiting {
			t.Errorf("%+v; want s.State == freeslot.StateWaiting", s)
		}
	})
}

// lastDispatch is the id of the newest entry for a node.
func (r *rig) lastDispatch(node string) string {
	entries := r.stream(r.l.Dispatch(node))
	if len(entries) == 0 {
		return ""
	}
	return entries[len(entries)-1].ID
}

package cell

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/scripttest"
)

func TestScripts(t *testing.T) {
	t.Parallel()
	scripttest.Check(t, sources)
}

// TestScriptsUseWhatIsPassed runs every operation with KEYS and ARGV that report an
// index beyond the end: a caller that passes too few would else go unnoticed, as
// Lua reads nil there. Scripts that walk to #KEYS stay within by themselves.
func TestScriptsUseWhatIsPassed(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		r.Cell.scripts = make(script.Set)
		for name, s := range scripts {
			r.Cell.scripts[name] = script.New(name, guard+s.Text(false))
		}
		if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
			t.Fatal(err)
		}
		epoch := r.register(richNode("n1"))
		r.register(testNode("n2", 1))
		if _, err := r.Import(r.ctx(), richNode("n2"), NodeState{Epoch: "another"}); !errors.Is(err, ErrSuperseded) {
			t.Error(err)
		}
		if _, err := r.Import(r.ctx(), richNode("imported"), NodeState{Gone: true}); err != nil {
			t.Error(err)
		}
		// Several items, nodes and pools, so that the computed indexes are covered.
		a, b := submission("r1", "n1", "n2", "n3"), submission("", "n2")
		for _, res := range r.SubmitAll(r.ctx(), []Submission{a, b, a, submission("", "n3", "n2")}) {
			if res.Err != nil {
				t.Error(res.Err)
			}
		}
		if _, err := r.Register(r.ctx(), testNode("n1", 3), epoch); err != nil {
			t.Error(err)
		}
		if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Read: "0-1", Running: []Attempt{{a.JobID, 1}, {b.JobID, 1}}}); err != nil {
			t.Error(err)
		}
		linked, link := []LinkedHeartbeat(nil), testLink(2, "t")
		for _, node := range []string{"linked-1", "linked-2"} {
			_, first := r.RegisterLinked(r.ctx(), richNode(node), "e1", link, "")
			_, second := r.RegisterLinked(r.ctx(), richNode(node), "e2", link, "e1")
			if err := errors.Join(first, second); err != nil {
				t.Error(err)
			}
			linked = append(linked, LinkedHeartbeat{Heartbeat{Node: node, Epoch: "e2", Read: "0-1", Resources: []byte("{}"), Running: []Attempt{{a.JobID, 1}}}, link})
		}
		if results, err := r.heartbeats(r.ctx(), linked, r.runner.CallApart); err != nil || results[0].Err != nil || results[1].Err != nil || len(results[1].Stop) != 1 {
			t.Error(results, err)
		}
		if got, err := r.Link(r.ctx(), "linked-2"); err != nil || got.Link != link {
			t.Error(got, err)
		}
		if _, _, err := r.OwnedSpec(r.ctx(), "n1", epoch, a.JobID); err != nil {
			t.Error(err)
		}
		if _, err := r.Attach(r.ctx(), "", a.JobID, "r2"); err != nil {
			t.Error(err)
		}
		r.cfg.RetentionBytes = 1
		r.retain(r.Cell, 3)
		r.tells("n1", epoch, []ProgressOutcome{ProgressTaken, ProgressStale}, told(a.JobID, 1, 1, "1"), told(b.JobID, 1, 1, "1"))
		if _, err := r.Cancel(r.ctx(), "", a.JobID); err != nil {
			t.Error(err)
		}
		if _, err := r.Cell.complete(r.ctx(), []Completion{succeed("n1", epoch, a.JobID), succeed("n1", epoch, b.JobID)}); err != nil {
			t.Error(err)
		}
		shared := []Completion{succeed("n1", epoch, r.place("r1", 1, "n1")), succeed("n4", r.register(testNode("n4", 1)), r.place("r1", 1, "n4"))}
		if out, err := r.CompleteNodes(r.ctx(), shared); err != nil || !slices.Equal(out, []SharedOutcome{SharedCompleted, SharedCompleted}) {
			t.Error(out, err)
		}
		if _, err := r.Changes(r.ctx(), 0, 10); err != nil {
			t.Error(err)
		}
		if nodes, err := r.Nodes(r.ctx(), []string{"n1", "n2", "n3"}); err != nil || len(nodes.Nodes) != 3 {
			t.Error(nodes, err)
		}
		if id, err := r.History(r.ctx()); err != nil || id == "" {
			t.Error(id, err)
		}
		if _, err := r.TakePermits(r.ctx(), "acme", Rate{PerSecond: 1, Burst: 1}, 1); err != nil {
			t.Error(err)
		}
		if _, err := r.MemoryUse(r.ctx()); err != nil {
			t.Error(err)
		}
		if err := r.CheckRecord(r.ctx()); err != nil {
			t.Error(err)
		}
		if status, err := r.Drop(r.ctx(), "", a.JobID); err != nil || status.ID != a.JobID {
			t.Error(status, err)
		}
		w := submission("r1", "n1", "n2")
		w.Job.Slots, w.Job.TimeoutMS = 9, 1
		for _, res := range r.EnqueueAll(r.ctx(), []Submission{w, submission("r1"), submission("r1", "n1")}) {
			if res.Err != nil {
				t.Error(res.Err)
			}
		}
		if _, err := r.Take(r.ctx(), "n1", []string{echo}, 2); err != nil {
			t.Error(err)
		}
		if err := r.ConfigSeen(r.ctx(), 2); err != nil {
			t.Error(err)
		}
		if err := errors.Join(r.Drain(r.ctx(), "n2"), r.Undrain(r.ctx(), "n2")); err != nil {
			t.Error(err)
		}
		held, _ := r.slots("n1")
		for job := range held {
			comp := r.fails("n1", epoch, job, Retry)
			comp.RetryDelay = time.Millisecond
			if _, err := r.Cell.complete(r.ctx(), []Completion{comp}); err != nil {
				t.Error(err)
			}
		}
		r.pass(w.JobID)
		if _, err := r.CheckLimits(r.ctx(), 10); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Due(r.ctx(), 10); err != nil {
			t.Error(err)
		}
		if reaped, err := r.Reap(r.ctx(), "n2", "none"); err != nil || reaped.Gone {
			t.Error(reaped, err)
		}
		r.strictMoves()
		r.cancelWaiting()
		c := r.place("r1", 1, "n1")
		if lost, err := r.Deregister(r.ctx(), "n1", epoch); err != nil || !slices.Equal(lost, []string{c}) {
			t.Error(lost, err)
		}
		r.sound()
		// The guard itself works.
		cmd := r.raw.B().Eval().Script(guard + "return KEYS[2]").Numkeys(1).Key(r.l.Version()).Build()
		if err := r.raw.Do(r.ctx(), cmd).Error(); err == nil || !strings.Contains(err.Error(), "KEYS[2] of 1") {
			t.Errorf("reading beyond the end: %v", err)
		}
	})
}

// guard makes reading beyond KEYS and ARGV an error.
var guard = func() string {
	line := `local %[1]s = setmetatable({unpack(%[1]s)}, {__index = function(t, i) error('%[1]s[' .. tostring(i) .. '] of ' .. #t) end})` + "\n"
	return fmt.Sprintf(line, "KEYS") + fmt.Sprintf(line, "ARGV")
}()

package cell

import (
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/redistest"
)

// TestOutOfMemory: where Redis refuses writes for lack of memory, nothing new begins,
// and everything that ends work or keeps a node alive goes on.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	if err := r.OpenReplies(r.ctx(), "r1"); err != nil {
		t.Fatal(err)
	}
	epoch, leaving, restarting := r.register(testNode("n1", 4)), r.register(richNode("n2")), r.register(richNode("n3"))
	done, cancelled, refused := r.place("r1", 1, "n1"), r.place("r1", 1, "n1"), submission("r1", "n1")
	left, lost := r.place("r1", 1, "n2"), r.place("r1", 1, "n3")
	read := r.lastDispatch("n1")
	if page, err := r.Jobs(r.ctx(), JobFilter{}, "", 1); err != nil || page.Cursor == "" {
		t.Fatalf("%+v, %v", page, err)
	}

	use := func() float64 {
		t.Helper()
		share, err := r.MemoryUse(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		return share
	}
	if share := use(); share != 0 {
		t.Errorf("%v of an unlimited memory is in use", share)
	}
	r.do("CONFIG", "SET", "maxmemory", "1gb")
	if share := use(); share <= 0 || share > 0.5 {
		t.Errorf("%v of 1 GB is in use", share)
	}
	r.do("CONFIG", "SET", "maxmemory", "1")
	if share := use(); share <= 1 {
		t.Errorf("%v of 1 byte is in use", share)
	}
	defer r.do("CONFIG", "SET", "maxmemory", "0")
	if _, err := r.try("SET", r.l.Prefix+":x", "y"); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("Redis takes writes: %v", err)
	}
	r.unchanged("a refused submit", func() {
		if p, err := r.Submit(r.ctx(), refused); err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("submit: %+v, %v", p, err)
		}
	}, nil)
	if s, err := r.Cancel(r.ctx(), "", cancelled); err != nil || s.State != freeslot.StateCancelling {
		t.Errorf("cancel: %+v, %v", s, err)
	}
	hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Read: read})
	if err != nil || len(hb.Cancel) != 1 || len(hb.Start) != 2 {
		t.Errorf("heartbeat: %+v, %v", hb, err)
	}
	// Also without anything to trim, which frees memory first.
	if hb, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch, Running: hb.Start}); err != nil || len(hb.Start) != 0 || len(hb.Cancel) != 1 {
		t.Errorf("heartbeat: %+v, %v", hb, err)
	}
	if out, err := r.Complete(r.ctx(), succeed("n1", epoch, done)); err != nil || out != Completed {
		t.Errorf("complete: %v, %v", out, err)
	}
	if got, err := r.Deregister(r.ctx(), "n2", leaving); err != nil || len(got) != 1 || got[0] != left {
		t.Errorf("deregister: %v, %v", got, err)
	}
	if reg, err := r.Register(r.ctx(), richNode("n3"), NewEpoch()); err != nil || len(reg.Lost) != 1 || reg.Lost[0] != lost {
		t.Errorf("register with a new epoch: %+v, %v", reg, err)
	}
	if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n3", Epoch: restarting}); err == nil {
		t.Error("the epoch before is still there")
	}
	if err := r.KeepReplies(r.ctx(), "r1", "0-1"); err != nil {
		t.Errorf("keep replies: %v", err)
	}
	rs, err := r.Replies(r.ctx(), "r1", "", 0, 10)
	if err != nil || len(rs) != 4 {
		t.Errorf("replies: %+v, %v", rs, err)
	}
	if ids, _ := r.all(JobFilter{}, 1); len(ids) != 4 {
		t.Errorf("listed %v", ids)
	}
	for job, state := range map[string]freeslot.State{
		done: freeslot.StateSucceeded, cancelled: freeslot.StateCancelling, left: freeslot.StateFailed, lost: freeslot.StateFailed,
	} {
		if s := r.status(job); s.State != state {
			t.Errorf("job is %s, expected %s", s.State, state)
		}
	}
	r.sound()
}

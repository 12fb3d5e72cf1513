package cell

import (
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
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
	linked, link := NewEpoch(), testLink(1, "t")
	_, err := r.RegisterLinked(r.ctx(), richNode("n4"), linked, link, "")
	must(t, err)
	done, cancelled, refused := r.place("r1", 1, "n1"), r.place("r1", 1, "n1"), submission("r1", "n1")
	left, lost := r.place("r1", 1, "n2"), r.place("r1", 1, "n3")
	read := r.lastDispatch("n1")
	if page, err := r.Jobs(r.ctx(), JobFilter{}, "", 1); err != nil || page.Cursor == "" {
		t.Fatalf(`%+v, %v; want no error, page.Cursor != ""`, page, err)
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
	if _, err := r.HeartbeatLinked(r.ctx(), Heartbeat{Node: "n4", Epoch: linked, Resources: []byte(`{"a":1}`)}, link); err != nil {
		t.Errorf("heartbeat through a gateway: %v", err)
	}
	if reg, err := r.RegisterLinked(r.ctx(), richNode("n4"), NewEpoch(), link, linked); err != nil || len(reg.Lost) != 0 {
		t.Errorf("register through a gateway with a new epoch: %+v, %v", reg, err)
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
		done: freeslot.StateSucceeded, cancelled: freeslot.StateCancelling, left: freeslot.StateWaiting, lost: freeslot.StateWaiting,
	} {
		if s := r.status(job); s.State != state {
			t.Errorf("job is %s, expected %s", s.State, state)
		}
	}
	r.sound()
}

// TestOutOfMemoryWhileJobsWait: nobody new may wait, and all that makes those that wait fewer goes on.
func TestOutOfMemoryWhileJobsWait(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	r := newRig(t, server.Target)
	must(t, r.OpenReplies(r.ctx(), "r1"))
	epoch, silent := r.register(testNode("n1", 1)), r.register(richNode("n2"))
	running := r.place("r1", 1, "n1")
	lost := r.place("r1", 1, "n2")
	r.take("n1") // nobody waits, and the node is known to serve them
	next := r.waits("r1")
	cancelled, late, paused := r.waits("r1"), r.waits("r1", timeout(60_000)), r.waits("r1")
	r.pass(late)
	r.silence("n2")

	r.do("CONFIG", "SET", "maxmemory", "1")
	defer r.do("CONFIG", "SET", "maxmemory", "0")
	r.unchanged("a refused enqueue", func() {
		for _, s := range []Submission{submission("r1", "n1"), submission("r1")} {
			if res := r.EnqueueAll(r.ctx(), []Submission{s})[0]; res.Err == nil || !strings.Contains(res.Err.Error(), "OOM") {
				t.Errorf("enqueue: %+v", res)
			}
		}
	}, nil)
	if s, err := r.Cancel(r.ctx(), "", cancelled); err != nil || s.State != freeslot.StateCancelled {
		t.Errorf("cancel: %+v, %v", s, err)
	}
	if d, err := r.Due(r.ctx(), 10); err != nil || d.Expired != 1 {
		t.Errorf("due: %+v, %v", d, err)
	}
	if got, err := r.Reap(r.ctx(), "n2", silent); err != nil || !got.Gone || len(got.Jobs) != 1 {
		t.Errorf("reap: %+v, %v", got, err)
	}
	r.end("n1", epoch, running) // hands over: to the lost one or the next, both were first
	for range 3 {
		held, _ := r.slots("n1")
		for job := range held {
			failed := r.fails("n1", epoch, job, Retry)
			failed.RetryDelay = time.Hour
			r.complete1(failed)
		}
	}
	for job, want := range map[string]freeslot.State{
		running: freeslot.StateSucceeded, late: freeslot.StateExpired, cancelled: freeslot.StateCancelled,
		lost: freeslot.StateRetryWait, next: freeslot.StateRetryWait, paused: freeslot.StateRetryWait,
	} {
		if s := r.status(job); s.State != want {
			t.Errorf("job is %s, expected %s", s.State, want)
		}
	}
	if got, err := r.Take(r.ctx(), "n1", []string{echo}, 1); err == nil && got.Jobs != 0 {
		t.Errorf("take: %+v, %v", got, err)
	}
	r.sound()
}

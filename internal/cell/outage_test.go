package cell

import (
	"errors"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestScriptsAreLoadedAgain: a server that has lost its scripts is no trouble.
func TestScriptsAreLoadedAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.New(t).Target)
	flush := func() { r.do("SCRIPT", "FLUSH") }
	flush()
	epoch := r.register(testNode("n1", 1))
	flush()
	job := r.place("", 1, "n1")
	flush()
	if _, err := r.Cancel(r.ctx(), "", job); err != nil {
		t.Error(err)
	}
	flush()
	if _, err := r.Attach(r.ctx(), "", job, "r1"); err != nil {
		t.Error(err)
	}
	flush()
	if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil {
		t.Error(err)
	}
	flush()
	r.end("n1", epoch, job)
	flush()
	if _, err := r.Changes(r.ctx(), 0, 10); err != nil {
		t.Error(err)
	}
	flush()
	if _, err := r.Deregister(r.ctx(), "n1", epoch); err != nil {
		t.Error(err)
	}
	r.sound()
}

// TestKilled: a crash of Redis with an append-only file loses nothing that was
// answered, and leaves nothing half done.
func TestKilled(t *testing.T) {
	t.Parallel()
	server := redistest.New(t, redistest.AppendOnly("always"))
	r := newRig(t, server.Target)
	epoch := r.register(testNode("n1", freeslot.MaxConcurrencyLimit))
	placed, ended := make(chan string, 1<<16), make(chan string, 1<<16)
	begun := make(chan struct{}, 1<<16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(8, func(int) {
			for {
				s := submission("", "n1")
				if p, err := r.Submit(r.ctx(), s); err != nil || !p.Assigned {
					return
				}
				placed <- s.JobID
				if out, err := r.Complete(r.ctx(), succeed("n1", epoch, s.JobID)); err != nil || out != Completed {
					return
				}
				ended <- s.JobID
				begun <- struct{}{}
			}
		})
	}()
	for range 100 {
		receive(t, begun)
	}
	server.Kill()
	receive(t, done)
	server.Restart()
	r.sound()
	close(placed)
	close(ended)
	for job := range placed {
		if _, err := r.Job(r.ctx(), "", job); err != nil {
			t.Fatal(err)
		}
	}
	for job := range ended {
		if s := r.status(job); s.State != freeslot.StateSucceeded {
			t.Fatalf("%+v; want s.State == freeslot.StateSucceeded", s)
		}
	}
	// The agent goes on as if nothing had happened.
	if _, err := r.Heartbeat(r.ctx(), Heartbeat{Node: "n1", Epoch: epoch}); err != nil && !errors.Is(err, ErrUnknownNode) {
		t.Error(err)
	}
}

package client_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/internal/session"
)

// report has a job's handler report progress.
func (f *fleet) report(id string, attempt int, seq int64, value string) {
	f.mu.Lock()
	p := freeslot.Progress{Attempt: attempt, Seq: seq, AtMS: 3, Value: json.RawMessage(value)}
	f.jobs[id].status.Progress = &p
	sink := f.jobs[id].sink
	f.mu.Unlock()
	if sink != nil {
		sink.Progress(id, p)
	}
}

// next waits for the next value; false when there are no more.
func next(t *testing.T, h *client.Handle) (freeslot.Progress, bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	select {
	case p, ok := <-h.Progress():
		return p, ok
	case <-limit.C:
		t.Fatal("no progress, and no end of it")
		return freeslot.Progress{}, false
	}
}

// caughtUp returns once the client has received everything that was sent before. Progress comes
// after the answer that belongs to it, if there is one, and before the next answer.
func caughtUp(t *testing.T, c *client.Client) {
	t.Helper()
	for range 2 {
		if _, err := c.Cancel(deadline(t), "0-0"); freeslot.CodeOf(err) != freeslot.CodeNotFound {
			t.Fatal(err)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	c := dial(t, client.Options{}, f.replica(session.Config{}))
	h := submit(t, c, "hold")
	f.report(h.ID(), 1, 1, `{"done":1}`)
	if p, ok := next(t, h); !ok || p.Attempt != 1 || p.Seq != 1 || p.AtMS != 3 || string(p.Value) != `{"done":1}` {
		t.Errorf("got %+v, %v", p, ok)
	}
	// Only the latest unread value stays. An older value is not new.
	for seq := range int64(50) {
		f.report(h.ID(), 1, seq+2, "2")
	}
	f.report(h.ID(), 1, 7, "7")
	f.report(h.ID(), 1, 99, "99")
	caughtUp(t, c)
	if p, _ := next(t, h); p.Seq != 99 {
		t.Errorf("got %+v", p)
	}
	f.report(h.ID(), 1, 100, "100")
	caughtUp(t, c)
	f.finish(h.ID(), freeslot.StateSucceeded, json.RawMessage("7"))
	wait(t, h)
	if p, ok := next(t, h); !ok || p.Seq != 100 {
		t.Errorf("got %+v, %v; expected the value from before the end", p, ok)
	}
	if p, ok := next(t, h); ok {
		t.Errorf("got %+v after the end", p)
	}

	// A channel that is made after the end is closed at once.
	quiet := submit(t, c, "echo")
	wait(t, quiet)
	if _, ok := next(t, quiet); ok {
		t.Error("got progress of a job without any")
	}
}

// TestProgressAfterAReconnect: the handle has the latest from the new replica, and once.
func TestProgressAfterAReconnect(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	first, second := f.replica(session.Config{}), f.replica(session.Config{})
	c := dial(t, client.Options{}, first, second)
	h := submit(t, c, "hold")
	f.report(h.ID(), 1, 1, "1")
	if p, _ := next(t, h); p.Seq != 1 {
		t.Errorf("got %+v", p)
	}
	f.mu.Lock()
	f.jobs[h.ID()].sink = nil // progress reaches no client now
	f.mu.Unlock()
	f.report(h.ID(), 1, 2, "2")
	first.kill()
	if p, _ := next(t, h); p.Seq != 2 {
		t.Errorf("got %+v after the reconnect", p)
	}
	f.finish(h.ID(), freeslot.StateSucceeded, json.RawMessage("7"))
	wait(t, h)
	if p, ok := next(t, h); ok {
		t.Errorf("got %+v twice", p)
	}
}

// TestProgressForReal: from a handler of package worker to a handle.
func TestProgressForReal(t *testing.T) {
	t.Parallel()
	c, err := client.Dial(deadline(t), replicaURL(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	h, err := c.Submit(deadline(t), freeslot.Job{Service: "talk"})
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := next(t, h); !ok || p.Attempt != 1 || p.Seq != 1 || string(p.Value) != "[1,2]" {
		t.Errorf("got %+v, %v", p, ok)
	}
	if _, err := c.Cancel(deadline(t), h.ID()); err != nil {
		t.Fatal(err)
	}
	if s := wait(t, h); s.State != freeslot.StateCancelled {
		t.Errorf("%+v; want s.State == freeslot.StateCancelled", s)
	}
}

package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/retry"
)

// hanging is a cell whose heartbeats can hang and then ignore even their context.
type hanging struct {
	store
	hangs, goOn chan struct{}
}

func (h *hanging) Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
	select {
	case <-h.hangs:
		<-h.goOn
	default:
	}
	return h.store.Heartbeat(ctx, hb)
}

// TestAlive: a node without Redis is alive, one whose loop is stuck is not.
func TestAlive(t *testing.T) {
	var h *hanging
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		expect := func(want bool, when string) {
			t.Helper()
			if w.Alive() != want {
				t.Errorf("alive is %t %s", !want, when)
			}
		}
		for range 10 {
			time.Sleep(time.Minute + 500*time.Millisecond) // virtual time
			synctest.Wait()
			expect(true, "while all is well")
		}
		f.with(func() { f.away = true })
		time.Sleep(time.Hour)
		expect(true, "while Redis is away")
		f.with(func() { f.away = false })
		close(h.hangs)
		time.Sleep(turnMargin)
		expect(true, "before its time is up")
		time.Sleep(2*DefaultHeartbeatInterval + retry.Longest)
		expect(false, "while the loop is stuck")
		close(h.goOn)
		time.Sleep(2 * minBeatGap)
		expect(true, "when the loop goes on")
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		expect(true, "after the end")
	}, func(w *Worker) {
		h = &hanging{hangs: make(chan struct{}), goOn: make(chan struct{})}
		wrap(func(s store) store { h.store = s; return h })(w)
		if !w.Alive() {
			t.Error("not alive before the start")
		}
	}, handle("a", echo))
}

// TestTurnIsOfTheMonotonicClock: else a change of the machine's time would make the process seem
// stuck.
func TestTurnIsOfTheMonotonicClock(t *testing.T) {
	t.Parallel()
	var w Worker
	w.turn()
	if at := w.turned.Load(); !strings.Contains(at.String(), " m=") { // as Time.String shows the monotonic part
		t.Errorf("%s is of the wall clock", at)
	}
}

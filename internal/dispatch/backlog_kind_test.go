package dispatch

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestKinds: each new job is counted once for its pool and service, and its run time once. Waiting
// jobs and those that are due soon are counted by every replica; what is paused counts apart.
func TestKinds(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	var mu sync.Mutex
	var came []string
	ran := make(chan Kind, 1)
	quick := func(c *replicaConfig) {
		c.dispatch.SweepInterval = 20 * time.Millisecond
		c.dispatch.Came = func(k Kind, slots int) {
			mu.Lock()
			defer mu.Unlock()
			came = append(came, fmt.Sprint(k, slots))
		}
		c.dispatch.Ran = func(k Kind, took time.Duration) {
			if took < 0 || took > patience {
				t.Errorf("%v ran for %s; want the time between its assignment and its end", k, took)
			}
			ran <- k
		}
	}
	cfg := func(paused *selection.Paused) *selection.Config {
		return &selection.Config{
			Version: 1, Generation: "g", Enabled: true, Pools: selection.Pools{{ID: "speech", Services: []string{"echo"}}},
			Paused: paused,
		}
	}
	a, sink := r.agent(node("n1", 2)), newRecorder(t)
	x, y := r.replica("x", quick), r.replica("y", quick)
	x.goBy(cfg(nil))
	y.goBy(cfg(nil))
	large := &freeslot.Job{Service: "echo", Slots: 2, IdempotencyKey: "k"}
	ended := x.mustPlace(large, sink)
	if again, err := x.place(large, sink); again != ended || err != nil {
		t.Errorf("submitted again as %s, %v; want the same job", again, err)
	}
	x.mustWait(job(), 1, nil)
	later := &freeslot.Job{Service: "echo", Slots: 2, RunAtMS: time.Now().Add(DueWithin * 9 / 10).UnixMilli()}
	x.mustWait(later, 0, nil)
	x.mustWait(&freeslot.Job{Service: "echo", RunAtMS: time.Now().Add(time.Hour).UnixMilli()}, 0, nil)
	speech := Kind{"speech", "echo"}
	if want := []string{fmt.Sprint(speech, 2), fmt.Sprint(speech, 1)}; !slices.Equal(came, want) {
		t.Errorf("counted %v; want %v", came, want)
	}
	waittest.Until(t, "y to count what waits and is due", func() bool {
		all, unreachable := y.KindBacklogs()
		n := all[speech]
		return len(unreachable) == 0 && len(all) == 1 && n.OldestMS > 0 &&
			n == KindBacklog{Waiting: 1, OldestMS: n.OldestMS, Due: 1, DueSlots: 2}
	})
	y.goBy(cfg(&selection.Paused{Services: []string{"echo"}}))
	waittest.Until(t, "y to count it as paused", func() bool {
		all, _ := y.KindBacklogs()
		return all[speech] == KindBacklog{Waiting: 1, Paused: 1}
	})
	a.complete(ended, `1`)
	if k := receive(t, "the run time", ran); k != speech {
		t.Errorf("the run time is for %v; want %v", k, speech)
	}
	sink.result(ended)
}

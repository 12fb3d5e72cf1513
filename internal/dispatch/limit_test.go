package dispatch

import (
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// Jobs with a concurrency key never run more at a time than its limit, whichever replicas submit
// them and however many nodes are free. All of them run.
func TestConcurrencyKey(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		var mu sync.Mutex
		running, most := 0, 0
		release := make(chan struct{})
		change := func(by int) {
			mu.Lock()
			defer mu.Unlock()
			running += by
			most = max(most, running)
		}
		for _, name := range []string{"n1", "n2", "n3"} {
			a := r.agent(node(name, 4))
			a.serve(func(cell.Dispatch) string {
				change(1)
				<-release
				change(-1) // it stops before Redis hears of it
				return `1`
			})
		}
		x, y := r.replica("x"), r.replica("y")
		keyed := func() *freeslot.Job {
			return &freeslot.Job{Service: "echo", ConcurrencyKey: "user 7", ConcurrencyLimit: 2}
		}
		rec := newRecorder(t)
		var ids []string
		for range 20 {
			for _, rep := range []*replica{x, y} {
				a, err := rep.submitOne(t, keyed(), rec)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, a.JobID)
			}
		}
		waittest.Until(t, "two run", func() bool { mu.Lock(); defer mu.Unlock(); return running == 2 })
		for range ids {
			select {
			case release <- struct{}{}:
			case <-deadline(t).Done():
				t.Fatal("none of the jobs that are left runs")
			}
		}
		for _, id := range ids {
			if got := rec.result(id); got.State != freeslot.StateSucceeded {
				t.Errorf("%+v; want got.State == freeslot.StateSucceeded", got)
			}
		}
		if most > 2 {
			t.Errorf("%d jobs of the key ran at once", most)
		}
	})
}

// The shares of the cells add up to the limit of a tenant.
func TestLimitShares(t *testing.T) {
	for _, cells := range []int{1, 3, 64} {
		d := &Dispatcher{byCell: make([]*cellClient, cells)}
		for _, limit := range []int{64, 65, 100, 1000} {
			sum := 0
			for i := range cells {
				sum += d.limitShare(limit, i)
			}
			if sum != limit {
				t.Errorf("%d cells have %d of %d", cells, sum, limit)
			}
		}
	}
}

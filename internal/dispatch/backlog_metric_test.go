package dispatch

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// Every replica reports how many jobs wait, and for how long. It reports nothing about a cell that
// is away.
func TestBacklog(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	r := newRig(t, redis.Target)
	a := r.agent(node("n1", 1))
	quick := func(c *replicaConfig) { c.dispatch.SweepInterval = 20 * time.Millisecond }
	x, y := r.replica("x", quick), r.replica("y", quick)
	shows := func(rep *replica, waiting, held float64, old bool) func() bool {
		b := rep.metrics
		return func() bool {
			return testutil.ToFloat64(b.waiting.WithLabelValues("0")) == waiting && testutil.ToFloat64(b.held.WithLabelValues("0")) == held &&
				testutil.ToFloat64(b.oldest.WithLabelValues("0")) > 0 == old
		}
	}
	ids := []string{x.mustPlace(job(), nil), x.mustWait(job(), 1, nil), y.mustWait(job(), 2, nil)}
	keyed := &freeslot.Job{Service: "echo", ConcurrencyKey: "user 7", ConcurrencyLimit: 1}
	for range 2 {
		placed, err := x.submitOne(t, keyed, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, placed.JobID)
	}
	waittest.Until(t, "x shows what waits", shows(x, 4, 0, true)) // no job of the key runs, so its limit holds none back
	waittest.Until(t, "y shows the same", shows(y, 4, 0, true))
	if pools := y.PoolBacklogs(); len(pools) != 1 || pools[""].Waiting != 4 || pools[""].OldestMS == 0 {
		t.Errorf("by pool %+v waits; want 4 jobs that ask for none", pools)
	}
	for _, id := range ids[:3] {
		a.attempt(id, 1)
	}
	waittest.Until(t, "one waits", shows(y, 1, 0, true))
	r.agent(node("n2", 1))
	waittest.Until(t, "it is held back beside a free slot", shows(y, 0, 1, false))
	for _, id := range ids[3:] {
		a.attempt(id, 1)
	}
	waittest.Until(t, "nothing waits", shows(x, 0, 0, false))
	redis.Kill()
	waittest.Until(t, "no values", func() bool {
		return testutil.CollectAndCount(prometheus.Collector(x.metrics.waiting)) == 0
	})
	redis.Restart()
	waittest.Until(t, "the values return", shows(x, 0, 0, false))
}

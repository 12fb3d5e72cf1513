package dispatch

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// Two replicas keep the records of ended jobs within their bytes. An idempotency key whose job's
// record is gone still names the job, so the job does not run again.
func TestRetention(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		const limit = 20_000
		r := newRig(t, redis)
		a := r.agent(node("n1", 1))
		limited := func(c *replicaConfig) { c.cell = func(c *cell.Config) { c.RetentionBytes = limit } }
		x, y := r.replica("x", limited), r.replica("y", limited)
		keyed := &freeslot.Job{Service: "echo", IdempotencyKey: "k"}
		first, err := x.submitOne(t, keyed, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.attempt(first.JobID, 1)
		const jobs = 40
		for range jobs {
			sink := newRecorder(t)
			j := job()
			j.Payload = json.RawMessage(`"` + strings.Repeat("x", 300) + `"`)
			id := y.mustPlace(j, sink)
			a.attempt(id, 1)
			if s := sink.result(id); s.State != freeslot.StateSucceeded {
				t.Fatalf("%+v; want s.State == freeslot.StateSucceeded", s)
			}
		}
		dropped := func() float64 {
			return testutil.ToFloat64(x.byCell[0].metrics.dropped) + testutil.ToFloat64(y.byCell[0].metrics.dropped)
		}
		kept := func(rep *replica) float64 {
			return testutil.ToFloat64(rep.byCell[0].metrics.retained.WithLabelValues())
		}
		waittest.Until(t, "within the limit", func() bool {
			return dropped() > 20 && kept(x) == kept(y) && kept(x) > limit/2 && kept(x) <= limit
		})
		if n := r.do("EXISTS", r.layout.Job(first.JobID)); n != 0 {
			t.Fatal("the first record is still there")
		}
		if _, err := y.submitOne(t, keyed, nil); freeslot.CodeOf(err) != freeslot.CodeConflict {
			t.Errorf("the key: %v, expected conflict", err)
		}
	})
}

package dispatch

import (
	"encoding/json"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestProgress: progress of a node reaches the sink, at any replica, before the result.
func TestProgress(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		a := r.agent(node("n1", 1))
		rep := r.replica("r1")
		sink := newRecorder(t)
		id := rep.mustPlace(job(), sink)
		c, _, _ := r.of("n1")
		report := func(seq int64, value string) {
			t.Helper()
			reports := []cell.ProgressReport{{Attempt: cell.Attempt{Job: id, N: 1}, Seq: seq, Value: json.RawMessage(value)}}
			if out, err := c.Progress(deadline(t), "n1", a.epoch, reports); err != nil || out[0] != cell.ProgressTaken {
				t.Fatal(out, err)
			}
		}
		heard := func(sink *recorder, seq int64) (found bool) {
			for _, what := range sink.of(id) {
				p, ok := what.(freeslot.Progress)
				found = found || ok && p.Seq == seq
			}
			return found
		}
		report(1, `"one"`)
		waittest.Until(t, "progress", func() bool { return heard(sink, 1) })

		other, second := r.replica("r2"), newRecorder(t)
		status, err := other.Attach(deadline(t), "", id, second)
		if err != nil || status.Progress == nil || string(status.Progress.Value) != `"one"` {
			t.Fatalf("%+v, %v; want no error, status.Progress != nil, string(status.Progress.Value) == `\"one\"`", status.Progress, err)
		}
		report(2, "2")
		waittest.Until(t, "progress at the other replica", func() bool { return heard(second, 2) })
		a.complete(id, "7")
		second.result(id)
		if got := second.kinds(id); got != "result" || heard(sink, 2) || heard(second, 1) {
			t.Errorf("the story is %q, of %v and %v", got, sink.of(id), second.of(id))
		}
	})
}

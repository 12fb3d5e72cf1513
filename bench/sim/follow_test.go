package sim

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLossIsMadeGood: whatever was lost before, once events come through again a replica knows all nodes.
func TestLossIsMadeGood(t *testing.T) {
	t.Parallel()
	lost, resyncs := int64(0), int64(0)
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t, false).WithDefaults()
		cfg.Loss = rapid.Float64Range(0.01, 0.9).Draw(t, "probability")
		w, err := newWorld(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		until := func(end int64) {
			for len(w.agenda.heap) > 0 && w.agenda.heap[0].at <= end {
				e, _ := w.agenda.next()
				w.now = e.at
				w.happen(&e)
			}
			w.now = end
		}
		change := func() {
			node := int32(rapid.IntRange(0, len(cfg.Slots)-1).Draw(t, "node"))
			w.truth.used[node] = int32(rapid.IntRange(0, cfg.Slots[node]).Draw(t, "used"))
			w.publish(node)
			until(w.now + rapid.Int64Range(0, 3_000_000).Draw(t, "pause"))
		}
		for range rapid.IntRange(1, 60).Draw(t, "changes") {
			change()
		}
		cfg.Loss = 1e-300
		change()
		until(1 << 62)
		for i, r := range w.replicas {
			for node, n := range r.views {
				if used, _ := n.Load(); used != int(w.truth.used[node]) {
					t.Fatalf("replica %d knows of %d slots in use on node %d, want %d", i, used, node, w.truth.used[node])
				}
			}
		}
		lost, resyncs = lost+w.tally.Lost, resyncs+w.tally.Resyncs
	})
	if lost == 0 || resyncs == 0 {
		t.Errorf("%d events were lost, %d comparisons", lost, resyncs)
	}
}

// TestTrim: what is dropped of the log was taken in by all.
func TestTrim(t *testing.T) {
	t.Parallel()
	for _, loss := range []float64{0, 0.2} {
		cfg := small()
		cfg.Loss = loss
		whole := mustRun(t, cfg)
		cfg = cfg.WithDefaults()
		w, err := newWorld(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		w.prefill()
		w.start()
		for {
			e, ok := w.agenda.next()
			if !ok {
				break
			}
			w.now = e.at
			w.happen(&e)
			w.trim()
		}
		if w.tally.Refused != whole.Counts.Refused || w.tally.Tried != whole.Counts.Tried || whole.Counts.Refused == 0 {
			t.Errorf("loss %v: %d of %d refused, want %d of %d", loss, w.tally.Refused, w.tally.Tried, whole.Counts.Refused, whole.Counts.Tried)
		}
	}
}

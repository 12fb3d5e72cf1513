package heartbeat

import (
	"testing"
	"time"
)

// TestSplitMetrics: a change brings the metrics alone; everything comes by its interval.
func TestSplitMetrics(t *testing.T) {
	t.Parallel()
	d := New(Policy{
		HeartbeatInterval: 10 * time.Second, MetadataInterval: time.Minute, MetadataGap: time.Second, SplitMetrics: true,
		Thresholds: map[string]Threshold{"cpu": {Kind: Any}},
	})
	now := time.Unix(1e9, 0)
	metrics := Metrics{"cpu": 1.0}
	step := func(after time.Duration, want Decision) {
		t.Helper()
		now = now.Add(after)
		if got := d.Decide(now, metrics); got != want {
			t.Fatalf("%s, expected %s", got, want)
		}
		if next := d.Next(now, metrics); (next == 0) != (want != None) {
			t.Fatalf("%s, and next after %s", want, next)
		}
		if want != None {
			d.Begin(want, now, metrics)
		}
	}
	done := func(after time.Duration, want Decision) {
		t.Helper()
		step(after, want)
		d.Succeeded()
	}
	done(0, MetadataUpdate)
	metrics = Metrics{"cpu": 2.0}
	step(500*time.Millisecond, None) // the gap
	done(500*time.Millisecond, MetricsUpdate)
	step(5*time.Second, None)
	done(5*time.Second, HeartbeatOnly) // ten seconds after the metrics, which were a heartbeat
	metrics = Metrics{"cpu": 3.0}
	step(time.Second, MetricsUpdate)
	d.Failed()
	metrics = Metrics{"cpu": 2.0} // as it was, but the failed one may have arrived
	done(0, MetricsUpdate)
	metrics = Metrics{"cpu": 4.0}
	if got := d.Demand(now.Add(time.Second), metrics); got != MetricsUpdate {
		t.Error(got)
	}
	// All that is left of the minute since the first one.
	done(48*time.Second, MetadataUpdate)
	metrics = Metrics{"cpu": 5.0}
	step(time.Second, MetricsUpdate)
	d.Forget() // while it is under way
	d.Succeeded()
	done(0, MetadataUpdate)
}

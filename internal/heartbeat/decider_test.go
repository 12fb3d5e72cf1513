package heartbeat

import (
	"testing"
	"time"
)

var start = time.Unix(1_000_000, 0)

// at is a moment of these tests, in seconds.
func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

func seed() Policy {
	return Policy{HeartbeatInterval: 10 * time.Second, MetadataInterval: 60 * time.Second, MetadataGap: time.Second, Thresholds: map[string]Threshold{
		"memory.usage": {Absolute, 0.1}, "health": {Kind: Any},
	}}
}

func memory(usage float64) Metrics { return Metrics{"memory.usage": usage, "health": true} }

func expect(t *testing.T, d *Decider, now time.Time, m Metrics, want Decision) {
	t.Helper()
	if got := d.Decide(now, m); got != want {
		t.Fatalf("after %s: %s, expected %s", now.Sub(start), got, want)
	}
}

func send(d *Decider, decision Decision, now time.Time, m Metrics) {
	d.Begin(decision, now, m)
	d.Succeeded()
}

func TestIntervals(t *testing.T) {
	d := New(seed())
	expect(t, d, at(0), memory(0.5), MetadataUpdate) // whatever the time
	send(d, MetadataUpdate, at(0), memory(0.5))
	for s := 10.0; s < 60; s += 10 {
		expect(t, d, at(s-0.001), memory(0.5), None)
		expect(t, d, at(s), memory(0.5), HeartbeatOnly)
		send(d, HeartbeatOnly, at(s), memory(0.5))
	}
	expect(t, d, at(60), memory(0.5), MetadataUpdate)
}

func TestMetadataResetsTheHeartbeat(t *testing.T) {
	d := New(seed())
	send(d, MetadataUpdate, at(0), memory(0.5))
	send(d, MetadataUpdate, at(5), memory(0.7))
	expect(t, d, at(10), memory(0.7), None)
	expect(t, d, at(14.9), memory(0.7), None)
	expect(t, d, at(15), memory(0.7), HeartbeatOnly)
	// A heartbeat does not delay the metadata.
	send(d, HeartbeatOnly, at(64), memory(0.7))
	expect(t, d, at(65), memory(0.7), MetadataUpdate)
}

func TestSignificantChange(t *testing.T) {
	d := New(seed())
	send(d, MetadataUpdate, at(0), memory(0.5))
	expect(t, d, at(0.9), memory(0.9), None) // the gap
	expect(t, d, at(1), memory(0.9), MetadataUpdate)
	expect(t, d, at(3), memory(0.55), None)
	// The comparison is with the value that was sent last, so small steps add up.
	expect(t, d, at(4), memory(0.59), None)
	expect(t, d, at(5), memory(0.61), MetadataUpdate)
	// A heartbeat sends no figures.
	send(d, HeartbeatOnly, at(6), memory(0.61))
	expect(t, d, at(7), memory(0.61), MetadataUpdate)
	send(d, MetadataUpdate, at(7), memory(0.61))
	expect(t, d, at(9), memory(0.61), None)
	expect(t, d, at(9), Metrics{"health": true}, MetadataUpdate)
	expect(t, d, at(9), Metrics{"memory.usage": 0.61, "health": true, "unknown": 7}, None)
	send(d, MetadataUpdate, at(9), Metrics{})
	expect(t, d, at(11), memory(0.61), MetadataUpdate) // appeared
}

func TestChangeWithoutImmediateUpdate(t *testing.T) {
	p := seed()
	p.DisableImmediate = true
	d := New(p)
	send(d, MetadataUpdate, at(0), memory(0.5))
	expect(t, d, at(9.9), memory(0.9), None)
	if got := d.Demand(at(9.9), memory(0.9)); got != MetadataUpdate {
		t.Fatalf("a heartbeat in between: %s", got)
	}
	expect(t, d, at(10), memory(0.9), MetadataUpdate)
	expect(t, d, at(10), memory(0.5), HeartbeatOnly)
}

func TestDemand(t *testing.T) {
	d := New(seed())
	if got := d.Demand(at(0), nil); got != MetadataUpdate {
		t.Fatalf("at first %s", got)
	}
	send(d, MetadataUpdate, at(0), memory(0.5))
	for _, test := range []struct {
		now  time.Time
		m    Metrics
		want Decision
	}{
		{at(0.5), memory(0.9), HeartbeatOnly},
		{at(5), memory(0.9), MetadataUpdate},
		{at(5), memory(0.5), HeartbeatOnly},
		{at(60), memory(0.5), MetadataUpdate},
	} {
		if got := d.Demand(test.now, test.m); got != test.want {
			t.Errorf("after %s: %s, expected %s", test.now.Sub(start), got, test.want)
		}
	}
}

func TestNoTwoInFlight(t *testing.T) {
	d := New(seed())
	d.Begin(MetadataUpdate, at(0), memory(0.5))
	expect(t, d, at(1000), memory(0.9), None)
	if d.Demand(at(1000), memory(0.9)) != None || d.Next(at(1000), memory(0.9)) != Never {
		t.Fatal("something is due while one is under way")
	}
	defer func() {
		if recover() == nil {
			t.Fatal("a second one was begun")
		}
	}()
	d.Begin(HeartbeatOnly, at(1), memory(0.5))
}

func TestFailedIsDueAgain(t *testing.T) {
	d := New(seed())
	send(d, MetadataUpdate, at(0), memory(0.5))
	d.Begin(MetadataUpdate, at(5), memory(0.9))
	d.Failed()
	// Even when the change is gone: the store may have it.
	expect(t, d, at(5.1), memory(0.5), MetadataUpdate)
	send(d, MetadataUpdate, at(6), memory(0.5))
	d.Begin(HeartbeatOnly, at(7), memory(0.5)) // on demand
	d.Failed()
	expect(t, d, at(7.1), memory(0.5), HeartbeatOnly)
	send(d, HeartbeatOnly, at(7.1), memory(0.5))
	expect(t, d, at(7.2), memory(0.5), None)
}

func TestForget(t *testing.T) {
	d := New(seed())
	send(d, MetadataUpdate, at(0), memory(0.5))
	d.Forget()
	expect(t, d, at(1), memory(0.5), MetadataUpdate)
	// One that began before does not count.
	d.Begin(MetadataUpdate, at(1), memory(0.5))
	d.Forget()
	d.Succeeded()
	expect(t, d, at(2), memory(0.5), MetadataUpdate)
	send(d, MetadataUpdate, at(2), memory(0.5))
	expect(t, d, at(3), memory(0.5), None)
}

func TestEndWithoutBeginningIsNothing(t *testing.T) {
	d := New(seed())
	d.Succeeded()
	d.Failed()
	expect(t, d, at(0), nil, MetadataUpdate)
}

// A later change of the caller's map does not affect the values that were sent.
func TestBeginCopiesTheMetrics(t *testing.T) {
	d, m := New(seed()), memory(0.5)
	send(d, MetadataUpdate, at(0), m)
	m["memory.usage"] = 0.9
	expect(t, d, at(5), m, MetadataUpdate)
}

func TestJitterShortensIntervals(t *testing.T) {
	p := seed()
	p.Jitter = func(d time.Duration) time.Duration { return d / 2 }
	d := New(p)
	send(d, MetadataUpdate, at(0), memory(0.5))
	expect(t, d, at(4.9), memory(0.5), None)
	expect(t, d, at(5), memory(0.5), HeartbeatOnly)
	send(d, HeartbeatOnly, at(29), memory(0.5))
	expect(t, d, at(30), memory(0.5), MetadataUpdate)
}

func TestMetadataWithEveryHeartbeat(t *testing.T) {
	d := New(Policy{HeartbeatInterval: time.Second})
	for s := range 5 {
		expect(t, d, at(float64(s)), nil, MetadataUpdate)
		send(d, MetadataUpdate, at(float64(s)), nil)
	}
}

func TestDecisionNames(t *testing.T) {
	if None.String() != "NO_UPDATE" || HeartbeatOnly.String() != "HEARTBEAT_ONLY" || MetadataUpdate.String() != "METADATA_UPDATE" {
		t.Fatal(None, HeartbeatOnly, MetadataUpdate)
	}
}

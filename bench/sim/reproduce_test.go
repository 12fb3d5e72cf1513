package sim

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/bench/trace"
)

// pretended is a measured run that was simulated, with slots held longer than jobs take.
func pretended(t *testing.T) *Measured {
	t.Helper()
	cfg := small()
	cfg.Arrivals, cfg.Durations, cfg.Requests, cfg.Prefill = ArrivalsTrace, DurationsTrace, someTrace(), false
	cfg.MeanDuration, cfg.Overhead, cfg.Jobs, cfg.WarmUp = 34*time.Millisecond, 8*time.Millisecond, 20_000, 1000
	cfg.EventDelay, cfg.RoundTrip, cfg.ReplyDelay = Skewed(4000, 12000), Skewed(2500, 8000), Skewed(800, 3000)
	r := mustRun(t, cfg)
	return &Measured{
		About: "pretended", Replicas: cfg.Replicas, Slots: cfg.Slots, Seconds: r.Seconds, WarmUpSeconds: 1,
		Arrivals: ArrivalsTrace, ArrivalsPerSecond: cfg.Rate,
		Durations:        MeasuredDurations{Kind: DurationsTrace, MeanUS: 34_000, PerTokenNS: 34e6 / trace.MeanTokens(cfg.Requests)},
		HeartbeatSeconds: 0.1, EventDelay: cfg.EventDelay, RoundTrip: cfg.RoundTrip, ReplyDelay: cfg.ReplyDelay, BatchMean: r.BatchMean,
		Calls: r.Counts.Calls, Tried: r.Counts.Tried, Refused: r.Counts.Refused, FirstRefused: r.Counts.FirstRefused,
		Assigned: r.Counts.Assigned, Overloaded: r.Counts.Overloaded, BusyShare: r.Busy,
	}
}

// TestReproduce predicts its own run from what a measurement would have told of it.
func TestReproduce(t *testing.T) {
	t.Parallel()
	m := pretended(t)
	data, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadMeasured(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, again); diff != "" {
		t.Error(diff)
	}
	p, err := Reproduce(again, someTrace(), 77)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	near(t, "conflict rate", p.Predicted, p.Measured, 0.15)
	near(t, "busy share", p.PredictedBusy, p.MeasuredBusy, 0.03)
	near(t, "overhead", p.OverheadMS, 8, 0.1)
	near(t, "jobs a call", p.PredictedBatch, p.MeasuredBatch, 0.03)
	if !(p.PredictedLow <= p.Predicted && p.Predicted <= p.PredictedHigh) || p.OverCommits != 0 || p.Leaks != 0 {
		t.Errorf("%+v", p)
	}
	if _, err := Reproduce(again, nil, 1); err == nil {
		t.Error("a run of a trace was reproduced without it")
	}
}

func TestReproductionCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		conflicts int64
		factor    float64
		want      error
	}{{500, 1, nil}, {500, 1.5, nil}, {500, 0.67, nil}, {500, 1.51, ErrOff}, {500, 0.66, ErrOff}, {499, 1, ErrFew}, {5000, 0, ErrOff}} {
		p := Reproduction{Conflicts: tc.conflicts, Factor: tc.factor}
		if err := p.Check(); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestMeasuredRefuses(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Measured){
		"replicas":              func(m *Measured) { m.Replicas = 0 },
		"slots_of_nodes":        func(m *Measured) { m.Slots = nil },
		"without slots":         func(m *Measured) { m.Slots = []int{1, 0} },
		"seconds":               func(m *Measured) { m.Seconds = 0 },
		"warm_up_seconds":       func(m *Measured) { m.WarmUpSeconds = -1 },
		"arrivals is":           func(m *Measured) { m.Arrivals = "" },
		"arrivals_per_second":   func(m *Measured) { m.ArrivalsPerSecond = 0 },
		"durations.kind":        func(m *Measured) { m.Durations.Kind = "x" },
		"durations.mean_us":     func(m *Measured) { m.Durations.MeanUS = 0 },
		"durations.per_token":   func(m *Measured) { m.Durations.PerTokenNS = 0 },
		"heartbeat_seconds":     func(m *Measured) { m.HeartbeatSeconds = -1 },
		"refused of":            func(m *Measured) { m.Refused = m.Tried + 1 },
		"assigned":              func(m *Measured) { m.Assigned = 0 },
		"busy_share":            func(m *Measured) { m.BusyShare = 1.1 },
		"event_delay has":       func(m *Measured) { m.EventDelay = nil },
		"script_round_trip has": func(m *Measured) { m.RoundTrip = m.RoundTrip[:1] },
		"does not follow":       func(m *Measured) { m.ReplyDelay = Quantiles{{0.5, 1}, {0.4, 2}} },
		"is no quantile":        func(m *Measured) { m.ReplyDelay = Quantiles{{1.5, 1}} },
	} {
		m := &Measured{
			Replicas: 1, Slots: []int{1}, Seconds: 1, Arrivals: ArrivalsEven, ArrivalsPerSecond: 1,
			Durations: MeasuredDurations{Kind: DurationsTrace, MeanUS: 1, PerTokenNS: 1}, EventDelay: Fixed(1), RoundTrip: Fixed(1),
			Tried: 1, Assigned: 1, BusyShare: 0.5,
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		change(m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := ReadMeasured([]byte(`{"replicas": 1, "more": 2}`)); err == nil {
		t.Error("an unknown field was read over")
	}
}

func FuzzReadMeasured(f *testing.F) {
	f.Add([]byte(`{"replicas":1,"slots_of_nodes":[1],"seconds":1,"arrivals":"even","arrivals_per_second":5,"durations":{"kind":"fixed","mean_us":10},"event_delay":[{"at":0,"us":1},{"at":1,"us":2}],"script_round_trip":[{"at":0,"us":1},{"at":1,"us":2}],"tried":2,"assigned":2,"busy_share":0.5}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ReadMeasured(data)
		if err != nil {
			return
		}
		if r := m.Rate(); !(r >= 0 && r <= 1) {
			t.Errorf("a conflict rate of %v", r)
		}
	})
}

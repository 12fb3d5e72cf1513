package main

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// genConfig is any small simulation with delays that are always the same.
func genConfig(t *rapid.T) config {
	cfg := config{
		seed: rapid.Uint64().Draw(t, "seed"), replicas: rapid.IntRange(1, 4).Draw(t, "replicas"),
		slots: rapid.SliceOfN(rapid.IntRange(1, 4), 2, 12).Draw(t, "slots"),
		rate:  1000, jobs: 150, warmUp: rapid.IntRange(0, 20).Draw(t, "warm-up"),
		meanDuration: time.Duration(rapid.IntRange(1, 40).Draw(t, "mean")) * 331 * time.Microsecond,
		candidates:   rapid.IntRange(1, 3).Draw(t, "candidates"), rounds: rapid.IntRange(1, 5).Draw(t, "rounds"), batchItems: rapid.IntRange(1, 8).Draw(t, "batch"),
		eventDelay: fixed(float64(rapid.IntRange(0, 7).Draw(t, "event")) * 413), roundTrip: fixed(float64(rapid.IntRange(0, 7).Draw(t, "trip")) * 267),
		replyDelay: fixed(float64(rapid.IntRange(0, 7).Draw(t, "reply")) * 311),
		together:   rapid.IntRange(1, 6).Draw(t, "together"), groups: rapid.Bool().Draw(t, "groups"),
		heartbeat: time.Duration(rapid.IntRange(0, 3).Draw(t, "heartbeat")) * 7 * time.Millisecond,
	}
	if rapid.Bool().Draw(t, "trace") {
		cfg.requests = someTrace()
	}
	return cfg
}

// TestConservation: every job ends once, no node has more jobs than slots, and nothing stays taken
// or pending.
func TestConservation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t)
		cfg.prefill = rapid.Bool().Draw(t, "prefill")
		cfg.eventDelay = rapid.SampledFrom([]quantiles{nil, skewed(500, 4000)}).Draw(t, "event delay")
		o, err := simulate(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := o.counts
		inRounds := int64(0)
		for _, n := range c.rounds {
			inRounds += n
		}
		switch {
		case len(o.leaks) > 0 || c.overCommits != 0:
			t.Fatalf("%d over-commits, left behind: %q", c.overCommits, o.leaks)
		case c.arrived != int64(cfg.jobs) || c.arrived != c.assigned+c.overloaded:
			t.Fatalf("%d arrived, %d assigned, %d overloaded", c.arrived, c.assigned, c.overloaded)
		case inRounds != c.assigned || c.calls != inRounds+c.allRefused || c.tried != inRounds+c.refused:
			t.Fatalf("counts do not add up: %+v", c)
		case o.busy > 1:
			t.Fatalf("%v of the slots are busy", o.busy)
		}
	})
}

// TestNoDelayNoConflicts: replicas that know all at once are never refused.
func TestNoDelayNoConflicts(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 5} {
		cfg := small()
		cfg.replicas, cfg.meanDuration = replicas, 30*time.Millisecond
		cfg.eventDelay, cfg.roundTrip, cfg.replyDelay = nil, nil, nil
		o := mustSimulate(t, cfg)
		if o.counts.refused != 0 || o.counts.assigned != int64(cfg.jobs) {
			t.Errorf("%d replicas: %+v", replicas, o.counts)
		}
	}
}

// TestDelayMakesConflicts, the more the later.
func TestDelayMakesConflicts(t *testing.T) {
	t.Parallel()
	last := 0.0
	for _, us := range []float64{100, 1000, 10000} {
		cfg := small()
		cfg.eventDelay = fixed(us)
		rate := mustSimulate(t, cfg).conflictRate()
		if rate <= last {
			t.Errorf("a conflict rate of %v with a delay of %v us, %v with less", rate, us, last)
		}
		last = rate
	}
}

// TestErlang compares runs without delay with queueing theory: the share of jobs refused is
// Erlang's formula B. It does not depend on where a job is placed.
func TestErlang(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.eventDelay, cfg.roundTrip, cfg.replyDelay, cfg.heartbeat = nil, nil, nil, 0
	cfg.replicas, cfg.jobs, cfg.warmUp, cfg.meanDuration = 2, 60_000, 5_000, 54*time.Millisecond // 54 of 60 slots
	const slots, offered = 60, 54.0
	b := 1.0
	for n := 1.0; n <= slots; n++ {
		b = offered * b / (n + offered*b)
	}
	o := mustSimulate(t, cfg)
	near(t, "refused", float64(o.counts.overloaded)/float64(o.counts.arrived), b, 0.12)
	near(t, "busy", o.busy, offered*(1-b)/slots, 0.02)
}

func TestSameSeedSameResult(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.eventDelay, cfg.roundTrip = skewed(300, 2000), skewed(200, 900)
	a, b := mustSimulate(t, cfg), mustSimulate(t, cfg)
	same := cmp.AllowUnexported(outcome{}, counts{})
	if diff := cmp.Diff(a, b, same); diff != "" {
		t.Error(diff)
	}
	cfg.seed++
	if cmp.Equal(a, mustSimulate(t, cfg), same) {
		t.Error("another seed gives the same result")
	}
}

// TestPrefill begins at the load that the run has on average.
func TestPrefill(t *testing.T) {
	t.Parallel()
	for _, traced := range []bool{false, true} {
		cfg := small()
		cfg.warmUp, cfg.jobs = 0, 300
		if traced {
			cfg.requests = someTrace()
		}
		busy := 0.0
		for cfg.seed = range uint64(10) {
			busy += mustSimulate(t, cfg).busy / 10
		}
		near(t, "busy", busy, 0.7, 0.06)
	}
}

// TestTrim: all replicas have taken in what is dropped of the log.
func TestTrim(t *testing.T) {
	t.Parallel()
	whole := mustSimulate(t, small())
	w, err := newWorld(small())
	if err != nil {
		t.Fatal(err)
	}
	w.prefill()
	w.start()
	for w.step() {
		w.trim()
	}
	if w.counts.refused != whole.counts.refused || w.counts.tried != whole.counts.tried || whole.counts.refused == 0 {
		t.Errorf("%d of %d refused, want %d of %d", w.counts.refused, w.counts.tried, whole.counts.refused, whole.counts.tried)
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*config){
		"replicas": func(c *config) { c.replicas = 0 },
		"nodes":    func(c *config) { c.slots = nil },
		"slots":    func(c *config) { c.slots[3] = 0 },
		"views":    func(c *config) { c.slots, c.replicas = make([]int, maxNodes), 100 },
		"rate":     func(c *config) { c.rate = math.NaN() },
		"jobs":     func(c *config) { c.jobs = 0 },
		"mean":     func(c *config) { c.meanDuration = 0 },
		"wants":    func(c *config) { c.candidates = 9 },
		"rounds":   func(c *config) { c.rounds = -1 },
		"beats":    func(c *config) { c.heartbeat = -1 },
		"delay":    func(c *config) { c.eventDelay = quantiles{{0, 2}, {1, 1}} },
	} {
		cfg := small()
		change(&cfg)
		if _, err := simulate(cfg); err == nil {
			t.Errorf("%s: it was simulated", name)
		}
	}
}

package sim

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/freeslot/freeslot/internal/selection"
)

// genConfig is any small simulation, twin says that the twin must know it.
func genConfig(t *rapid.T, twin bool) Config {
	cfg := Config{
		Seed: rapid.Uint64().Draw(t, "seed"), Replicas: rapid.IntRange(1, 4).Draw(t, "replicas"),
		Slots: rapid.SliceOfN(rapid.IntRange(1, 4), 2, 12).Draw(t, "slots"),
		Rate:  1000, Jobs: 150, WarmUp: rapid.IntRange(0, 20).Draw(t, "warm-up"),
		Arrivals:     rapid.SampledFrom([]ArrivalKind{ArrivalsPoisson, ArrivalsTrace}).Draw(t, "arrivals"),
		Durations:    rapid.SampledFrom([]DurationKind{DurationsExponential, DurationsTrace, DurationsFixed}).Draw(t, "durations"),
		MeanDuration: time.Duration(rapid.IntRange(1, 40).Draw(t, "mean")) * 331 * time.Microsecond,
		Overhead:     time.Duration(rapid.IntRange(0, 3).Draw(t, "overhead")) * 171 * time.Microsecond,
		Requests:     someTrace(),
		Samples:      rapid.IntRange(0, 4).Draw(t, "samples"), Candidates: rapid.IntRange(1, 3).Draw(t, "candidates"),
		Rounds: rapid.IntRange(1, 5).Draw(t, "rounds"), BatchItems: rapid.IntRange(1, 8).Draw(t, "batch"),
		EventDelay: Fixed(float64(rapid.IntRange(0, 7).Draw(t, "event")) * 413), RoundTrip: Fixed(float64(rapid.IntRange(0, 7).Draw(t, "trip")) * 267),
		ReplyDelay: Fixed(float64(rapid.IntRange(0, 7).Draw(t, "reply")) * 311),
		CallTime:   time.Duration(rapid.IntRange(0, 90).Draw(t, "call")) * time.Microsecond,
		ItemTime:   time.Duration(rapid.IntRange(0, 9).Draw(t, "item")) * time.Microsecond, CompleteTime: 3 * time.Microsecond, HeartbeatTime: time.Microsecond,
		Heartbeat: time.Duration(rapid.IntRange(0, 3).Draw(t, "heartbeat")) * 7 * time.Millisecond,
	}
	cfg.Policy = rapid.SampledFrom([]selection.Policy{"", selection.PolicyBinpack}).Draw(t, "policy")
	if twin {
		return cfg
	}
	cfg.Full = rapid.SampledFrom([]FullPolicy{FullDrop, FullWait}).Draw(t, "full")
	cfg.Prefill = rapid.Bool().Draw(t, "prefill")
	cfg.ForwardShare = rapid.SampledFrom([]float64{0, 0.25, 0.5, 1}).Draw(t, "forward share")
	cfg.Pools = rapid.IntRange(0, 2).Draw(t, "pools")
	cfg.Keys = rapid.IntRange(0, 3).Draw(t, "keys")
	if rapid.Bool().Draw(t, "read replies") {
		cfg.ReplyDelay = nil
	}
	cfg.EventDelay = rapid.SampledFrom([]Quantiles{Fixed(0), Skewed(500, 4000)}).Draw(t, "event delay")
	if cfg.Heartbeat > 0 {
		cfg.Loss = rapid.SampledFrom([]float64{0, 0.1, 0.7}).Draw(t, "loss")
	}
	return cfg
}

// TestConservation: every job ends once, no node has more jobs than slots, and nothing stays taken or pending.
func TestConservation(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cfg := genConfig(t, false)
		r, err := Run(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c := r.Counts
		inRounds := int64(0)
		for _, n := range c.Rounds {
			inRounds += n
		}
		switch {
		case len(r.Leaks) > 0 || c.OverCommits != 0:
			t.Fatalf("%d over-commits, left behind: %q", c.OverCommits, r.Leaks)
		case c.Arrived != int64(cfg.Jobs) || c.Arrived != c.Assigned+c.Overloaded:
			t.Fatalf("%d arrived, %d assigned, %d overloaded", c.Arrived, c.Assigned, c.Overloaded)
		case inRounds+c.Waited != c.Assigned || c.Calls != inRounds+c.AllRefused || c.Tried != inRounds+c.Refused:
			t.Fatalf("counts do not add up: %+v", c)
		case cfg.Full == FullWait && c.Overloaded != 0:
			t.Fatalf("%d jobs that may wait were refused", c.Overloaded)
		case r.Busy > 1:
			t.Fatalf("%v of the slots are busy", r.Busy)
		case len(r.Ideal) == 0 || r.Ideal[0].US < 0:
			t.Fatalf("ideal delays %v", r.Ideal)
		}
	})
}

// TestNoDelayNoConflicts: who knows all at once is never refused.
func TestNoDelayNoConflicts(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 5} {
		cfg := small()
		cfg.Replicas, cfg.MeanDuration = replicas, 30*time.Millisecond
		cfg.EventDelay, cfg.RoundTrip, cfg.ReplyDelay = Fixed(0), Fixed(0), Fixed(0)
		r := mustRun(t, cfg)
		if r.Counts.Refused != 0 || r.Counts.Assigned != int64(cfg.Jobs) {
			t.Errorf("%d replicas: %+v", replicas, r.Counts)
		}
	}
}

// TestDelayMakesConflicts, the more the later.
func TestDelayMakesConflicts(t *testing.T) {
	t.Parallel()
	last := 0.0
	for _, us := range []float64{100, 1000, 10000} {
		cfg := small()
		cfg.EventDelay = Fixed(us)
		rate := mustRun(t, cfg).Rate()
		if rate <= last {
			t.Errorf("a conflict rate of %v with a delay of %v us, %v with less", rate, us, last)
		}
		last = rate
	}
}

// TestErlang holds runs without delay against queueing theory: the share of jobs refused by Erlang's formula B,
// the mean wait by formula C. Both do not depend on where a job is placed.
func TestErlang(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.EventDelay, cfg.RoundTrip, cfg.ReplyDelay, cfg.Heartbeat = Fixed(0), Fixed(0), Fixed(0), 0
	cfg.Replicas, cfg.Jobs, cfg.WarmUp, cfg.MeanDuration = 2, 60_000, 5_000, 54*time.Millisecond // 54 of 60 slots
	const slots, offered = 60, 54.0
	b := 1.0
	for n := 1.0; n <= slots; n++ {
		b = offered * b / (n + offered*b)
	}
	dropped := mustRun(t, cfg)
	near(t, "refused", share(dropped.Counts.Overloaded, dropped.Counts.Arrived), b, 0.12)
	near(t, "busy", dropped.Busy, offered*(1-b)/slots, 0.02)

	c := b / (1 - offered/slots*(1-b)) // the share that waits
	cfg.Full = FullWait
	w, err := newWorld(ref(cfg.WithDefaults()))
	if err != nil {
		t.Fatal(err)
	}
	w.prefill()
	w.run()
	mean := c * cfg.MeanDuration.Seconds() / (slots - offered)
	near(t, "mean wait", meanOf(w.tally.delays), mean, 0.25)
	near(t, "mean wait of the ideal", meanOf(w.tally.ideal), mean, 0.25)
	near(t, "mean wait against the ideal", meanOf(w.tally.delays), meanOf(w.tally.ideal), 0.01)
}

func ref[T any](v T) *T { return &v }

func meanOf(times []int64) float64 {
	sum := 0.0
	for _, t := range times {
		sum += seconds(t)
	}
	return sum / float64(len(times))
}

func TestSameSeedSameResult(t *testing.T) {
	t.Parallel()
	cfg := small()
	cfg.EventDelay, cfg.RoundTrip, cfg.Loss, cfg.Full = Skewed(300, 2000), Skewed(200, 900), 0.01, FullWait
	a, b := mustRun(t, cfg), mustRun(t, cfg)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Error(diff)
	}
	cfg.Seed++
	if cmp.Equal(a.Counts, mustRun(t, cfg).Counts) {
		t.Error("another seed gives the same result")
	}
}

// TestIdealTwin compares with a scheduler that looks at every slot for each job.
func TestIdealTwin(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		slots := rapid.IntRange(1, 6).Draw(t, "slots")
		free := make([]int64, slots)
		d := newIdeal(&Config{Slots: []int{slots}})
		at := int64(0)
		for i := range rapid.IntRange(0, slots).Draw(t, "before") {
			free[i] = rapid.Int64Range(1, 50).Draw(t, "rest")
			d.add(0, free[i])
		}
		for range 30 {
			at += rapid.Int64Range(0, 9).Draw(t, "gap")
			held := rapid.Int64Range(1, 50).Draw(t, "held")
			first := 0
			for i := range free {
				if free[i] < free[first] {
					first = i
				}
			}
			begin := max(at, free[first])
			free[first] = begin + held
			if got := d.delay(job{at: at, held: held}); got != begin-at {
				t.Fatalf("waits %d, want %d", got, begin-at)
			}
		}
	})
}

// TestPrefill begins at the load that the run has on average.
func TestPrefill(t *testing.T) {
	t.Parallel()
	cfg := small()
	for _, kind := range []DurationKind{DurationsExponential, DurationsFixed, DurationsTrace} {
		cfg.Durations, cfg.Requests, cfg.WarmUp, cfg.Jobs = kind, someTrace(), 0, 300
		sum := 0.0
		for cfg.Seed = range uint64(10) {
			sum += mustRun(t, cfg).Busy / 10
		}
		near(t, string(kind), sum, 0.7, 0.06)
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"replicas": func(c *Config) { c.Replicas = 0 },
		"nodes":    func(c *Config) { c.Slots = nil },
		"slots":    func(c *Config) { c.Slots[3] = 0 },
		"views":    func(c *Config) { c.Slots, c.Replicas = make([]int, maxNodes), 100 },
		"pools":    func(c *Config) { c.Pools = 31 },
		"keys":     func(c *Config) { c.Keys = -1 },
		"rate":     func(c *Config) { c.Rate = math.NaN() },
		"arrivals": func(c *Config) { c.Arrivals = "now and then" },
		"length":   func(c *Config) { c.Durations = "long" },
		"trace":    func(c *Config) { c.Arrivals = ArrivalsTrace },
		"jobs":     func(c *Config) { c.Jobs = 0 },
		"mean":     func(c *Config) { c.MeanDuration = 0 },
		"samples":  func(c *Config) { c.Samples = 9 },
		"wants":    func(c *Config) { c.Candidates = 9 },
		"rounds":   func(c *Config) { c.Rounds = -1 },
		"loss":     func(c *Config) { c.Loss = 1 },
		"unseen":   func(c *Config) { c.Loss, c.Heartbeat = 0.1, 0 },
		"time":     func(c *Config) { c.ItemTime = -1 },
		"full":     func(c *Config) { c.Full = "shrug" },
		"delay":    func(c *Config) { c.EventDelay = Quantiles{{0, 2}, {1, 1}} },
	} {
		cfg := small()
		change(&cfg)
		if _, err := Run(cfg); err == nil {
			t.Errorf("%s: it was simulated", name)
		}
	}
}

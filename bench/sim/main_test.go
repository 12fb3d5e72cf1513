package sim

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/trace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a fleet of 30 nodes with 60 slots, 70 % busy, with delays that are always the same.
func small() Config {
	cfg := Config{
		Seed: 1, Replicas: 3, Rate: 1000, Arrivals: ArrivalsPoisson, Durations: DurationsExponential,
		MeanDuration: 42 * time.Millisecond, Jobs: 3000, WarmUp: 200, Prefill: true,
		EventDelay: Fixed(1000), RoundTrip: Fixed(600), ReplyDelay: Fixed(800), Heartbeat: 100 * time.Millisecond,
	}
	for i := range 30 {
		cfg.Slots = append(cfg.Slots, 1+i%3)
	}
	return cfg
}

func mustRun(t *testing.T, cfg Config) *Result {
	t.Helper()
	r, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Leaks) > 0 || r.Counts.OverCommits != 0 {
		t.Fatalf("%d over-commits, left behind: %q", r.Counts.OverCommits, r.Leaks)
	}
	return r
}

// someTrace is a made-up trace: bursts, and tokens of 10 to 100.
func someTrace() []trace.Request {
	var all []trace.Request
	at := time.Duration(0)
	for i := range 400 {
		at += time.Duration(1+i*i%7) * 100 * time.Millisecond
		all = append(all, trace.Request{At: at - 100*time.Millisecond, GeneratedTokens: 10 + i*37%91})
	}
	all[0].At = 0
	return all
}

func someNodes() []trace.Node {
	var all []trace.Node
	for i := range 40 {
		all = append(all, trace.Node{ID: fmt.Sprintf("n-%d", i), GPU: []int{1, 2, 4, 8}[i%4]})
	}
	return all
}

// near fails unless got is within a share of want.
func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*math.Abs(want) {
		t.Errorf("%s: got %.4g, want %.4g within %.0f %%", what, got, want, within*100)
	}
}

package load

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/bench/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake ends each job after a time, or with an error.
type fake struct {
	takes     time.Duration
	err       error
	once      sync.Once
	stall     time.Duration // of the first Submit
	submitted atomic.Int64
	most      atomic.Int64 // jobs of one call
	inFlight  atomic.Int64
	peak      atomic.Int64
	bare      atomic.Int64
	calls     atomic.Int64 // of Submit that are under way
	callsPeak atomic.Int64
}

func (f *fake) Submit(_ context.Context, n int, done func(int, Outcome)) {
	f.noteCalls(f.calls.Add(1))
	defer f.calls.Add(-1)
	f.once.Do(func() { time.Sleep(f.stall) })
	f.submitted.Add(int64(n))
	f.most.Store(max(f.most.Load(), int64(n)))
	f.peak.Store(max(f.peak.Load(), f.inFlight.Add(int64(n))))
	started := time.Now()
	time.AfterFunc(f.takes, func() {
		for i := range n {
			f.inFlight.Add(-1)
			done(i, Outcome{Started: started, Assigned: started, Err: f.err})
		}
	})
}

func (f *fake) noteCalls(n int64) {
	for {
		if peak := f.callsPeak.Load(); n <= peak || f.callsPeak.CompareAndSwap(peak, n) {
			return
		}
	}
}

func (f *fake) Bare(context.Context) error {
	f.bare.Add(1)
	return nil
}

func (f *fake) Close() error { return nil }

func TestClosed(t *testing.T) {
	t.Parallel()
	var f *fake
	var got *Figures
	// A process that did not run for the whole window has counted nothing.
	for got == nil || got.Jobs == 0 {
		f = &fake{takes: 5 * time.Millisecond}
		var err error
		if got, err = Run(t.Context(), f, Request{Loop: Closed, InFlight: 8, Batch: 4, WarmUpMS: 50, MeasureMS: 200}); err != nil {
			t.Fatal(err)
		}
	}
	if f.peak.Load() > 8 || f.most.Load() != 4 {
		t.Errorf("%d jobs were in flight and %d in a call, expected at most 8, and 4", f.peak.Load(), f.most.Load())
	}
	if got.Jobs >= got.Ended || got.Ended != f.submitted.Load() {
		t.Errorf("%d jobs counted, %d ended, %d submitted: expected less counted than ended, and all to end", got.Jobs, got.Ended, f.submitted.Load())
	}
	if got.Result.P50 < 5000 || got.Result.Count != got.Jobs || got.Assign == nil || got.Late != nil || got.Bare != nil {
		t.Errorf("figures are %+v", got)
	}
}

// TestOpenCountsStalls is about coordinated omission: while the first call hangs, further jobs
// become due, and each of them counts from when it was due.
func TestOpenCountsStalls(t *testing.T) {
	t.Parallel()
	const rate, window, stall = 200, 500, 200 * time.Millisecond
	f := &fake{stall: stall}
	got, err := Run(t.Context(), f, Request{Loop: Open, Rate: rate, MeasureMS: window})
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(rate * window / 1000); got.Jobs != want {
		t.Errorf("%d jobs, expected %d", got.Jobs, want)
	}
	// sync.Once holds up all callers for the stall: 40 % of the jobs fall into it.
	if at := got.Result.Curve[len(got.Result.Curve)-1]; at < (stall * 9 / 10).Microseconds() {
		t.Errorf("the longest took %d us, expected about %s", at, stall)
	}
	if p80 := got.Result.Curve[9]; Quantiles[9] != 80 || p80 < (stall/4).Microseconds() {
		t.Errorf("p80 is %d us: jobs that fell into the stall were not counted from when they were due", p80)
	}
	if got.Late == nil {
		t.Error("how late jobs were submitted is not told")
	}
	if f.bare.Load() == 0 || got.Bare == nil {
		t.Error("the yardstick was not used beside the load")
	}
}

// TestPoisson: arrivals are in order, as many as the rate asks for, and at random distances.
func TestPoisson(t *testing.T) {
	t.Parallel()
	const rate, count = 1000.0, 20_000
	begin := time.Now()
	due := poisson(begin, rate)
	below := 0 // gaps below the mean: 1 - 1/e of them
	for i := 1; i < count; i++ {
		gap := due(i).Sub(due(i - 1))
		if gap < 0 {
			t.Fatalf("arrival %d is %s before the one before", i, -gap)
		}
		if gap.Seconds() < 1/rate {
			below++
		}
	}
	if took := due(count).Sub(begin).Seconds() * rate / count; took < 0.95 || took > 1.05 {
		t.Errorf("arrivals take %.3f of the time that their rate says", took)
	}
	if share := float64(below) / count; share < 0.61 || share > 0.655 {
		t.Errorf("%.3f of the gaps are below the mean, expected 0.632", share)
	}
}

// TestOpenBatches submits what is due together, where a call takes it, by as many calls at a time
// as a closed loop.
func TestOpenBatches(t *testing.T) {
	t.Parallel()
	f := &fake{stall: 50 * time.Millisecond}
	got, err := Run(t.Context(), f, Request{Loop: Open, Rate: 20_000, InFlight: 64, Batch: 16, MeasureMS: 200})
	if err != nil {
		t.Fatal(err)
	}
	if got.Jobs != 4000 || f.most.Load() < 2 || f.most.Load() > 16 {
		t.Errorf("%d jobs, at most %d in a call; expected 4000, and 2 to 16", got.Jobs, f.most.Load())
	}
	if f.callsPeak.Load() != 4 {
		t.Errorf("%d calls were under way, expected 64 jobs in flight to make it 4 of 16", f.callsPeak.Load())
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	f := &fake{err: errors.New("broken")}
	got, err := Run(t.Context(), f, Request{Loop: Open, Rate: 500, MeasureMS: 100})
	if err != nil {
		t.Fatal(err)
	}
	if got.Jobs != 0 || got.Failed["broken"] != 50 || got.Failures() != 50 {
		t.Errorf("figures are %+v, expected 50 failures", got)
	}
	if _, err := Run(t.Context(), f, Request{Loop: Closed, InFlight: 64, MeasureMS: 10_000}); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("a load of which all fails ended with %v", err)
	}
}

func TestRequestRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"loop":"closed","measure_ms":1}`:                             "in_flight",
		`{"loop":"open","measure_ms":1}`:                               "rate_per_second",
		`{"loop":"open","rate_per_second":5}`:                          "measure_ms",
		`{"loop":"open","rate_per_second":5,"batch":4,"measure_ms":1}`: "in_flight",
		`{"loop":"round"}`:                                             `"round"`,
		`nothing`:                                                      "invalid character",
	} {
		_, err := serve(&fake{}, []byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected it to contain %q", text, err, want)
		}
	}
}

func TestStamp(t *testing.T) {
	t.Parallel()
	for _, text := range []string{Stamp(), `"` + Stamp() + `"`} {
		at, err := ParseStamp([]byte(text))
		if err != nil || time.Since(at) > time.Minute {
			t.Errorf("%s is %s, %v", text, at, err)
		}
	}
	if _, err := ParseStamp([]byte("soon")); err == nil {
		t.Error("a text was taken for a moment")
	}
	if got := len(Payload()); got != PayloadBytes {
		t.Errorf("the payload has %d bytes", got)
	}
}

// TestLoadRole speaks the lines of a load process.
func TestLoadRole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	in := strings.NewReader(`{"loop":"closed","in_flight":2,"measure_ms":50}` + "\n" + `{"loop":"open"}` + "\n")
	open := func(context.Context, []string) (Submitter, error) { return &fake{}, nil }
	if err := runLoad(open, nil, in, &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || lines[0] != measure.Ready {
		t.Fatalf("said %q", lines)
	}
	var first, second Figures
	if err := json.Unmarshal([]byte(lines[1]), &first); err != nil || first.Jobs == 0 || first.Error != "" {
		t.Errorf("answered %s: %v", lines[1], err)
	}
	if err := json.Unmarshal([]byte(lines[2]), &second); err != nil || !strings.Contains(second.Error, "rate_per_second") {
		t.Errorf("answered %s: %v", lines[2], err)
	}
}

// TestWorkerRole ends with its input.
func TestWorkerRole(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	stopped := false
	start := func(context.Context, []string) (func() error, error) {
		return func() error { stopped = true; return nil }, nil
	}
	if err := runUntilEOF(start, nil, strings.NewReader("sing\n"), &out); err != nil {
		t.Fatal(err)
	}
	if !stopped || out.String() != "ready\n" {
		t.Errorf("stopped: %t, said %q", stopped, &out)
	}
}

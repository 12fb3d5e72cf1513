package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/freeslot/freeslot/bench/measure"
)

// PayloadBytes is the size of each job's payload: a JSON string.
const PayloadBytes = 256

// The loops.
const (
	// Closed keeps a fixed number of jobs in flight.
	Closed = "closed"
	// Open makes jobs due at a fixed rate, whatever became of those before.
	Open = "open"
	// Bare calls the yardstick again and again, and no job.
	Bare = "bare"
)

// Request asks for one window of load.
type Request struct {
	Loop string `json:"loop"`
	// InFlight is the number of jobs of a closed loop. An open loop whose calls take many jobs has
	// as many calls under way at most as a closed one: what becomes due meanwhile goes with the
	// next one, as a submitter does it that gathers jobs.
	InFlight int `json:"in_flight,omitempty"`
	// Batch is how many jobs one call submits at most, 1 where the peer has no such call.
	Batch int `json:"batch,omitempty"`
	// Rate is jobs a second of an open loop.
	Rate float64 `json:"rate_per_second,omitempty"`
	// Random makes the jobs of an open loop due at random moments (a Poisson process) instead of at
	// equal distances.
	Random bool `json:"random,omitempty"`
	// WarmUpMS runs before the window of MeasureMS that counts.
	WarmUpMS  int64 `json:"warm_up_ms"`
	MeasureMS int64 `json:"measure_ms"`
	// Probe calls the yardstick beside a closed loop, too; beside an open one it always is.
	Probe bool `json:"probe,omitempty"`
}

func (r *Request) validate() error {
	switch {
	case r.InFlight < 1 && (r.Loop == Closed || r.Loop == Open && r.Batch > 1):
		return errors.New("in_flight is missing")
	case r.Loop == Open && !(r.Rate > 0):
		return errors.New("rate_per_second is missing")
	case r.Loop != Closed && r.Loop != Open && r.Loop != Bare:
		return fmt.Errorf("loop %q is not known", r.Loop)
	case r.MeasureMS < 1:
		return errors.New("measure_ms is missing")
	}
	return nil
}

// calls is how many calls of a batch are under way at most.
func (r *Request) calls() int {
	return max(r.InFlight/max(r.Batch, 1), 1)
}

// Figures are what came of a Request.
type Figures struct {
	// Jobs were counted; all of them succeeded. In a closed loop they ended in the window, in an
	// open one they were due in it.
	Jobs          int64   `json:"jobs"`
	JobsPerSecond float64 `json:"jobs_per_second"`
	// Ended is how many succeeded between the Request and its answer, counted or not: what the
	// servers spent in that time was spent on all of these.
	Ended int64 `json:"ended,omitempty"`
	// Start is the time from submit (in an open loop: from when the job was due) until its handler
	// began, Result until the submitter had the result.
	Start  Times `json:"submit_to_start"`
	Result Times `json:"submit_to_result"`
	// Assign is the time until the submitter knew the node; nil where it never does.
	Assign *Times `json:"submit_to_assign,omitempty"`
	// Bare is the round trip of a bare EVALSHA while this load was on.
	Bare *Times `json:"evalsha,omitempty"`
	// Late is by how much an open loop submitted after the job was due: part of the times above.
	Late *Times `json:"submitted_late,omitempty"`
	// Failed counts jobs that did not succeed, by reason.
	Failed map[string]int64 `json:"failed,omitempty"`
	// Error is the reason why there are no figures.
	Error string `json:"error,omitempty"`
}

// Failures is how many jobs did not succeed.
func (f *Figures) Failures() (n int64) {
	for _, count := range f.Failed {
		n += count
	}
	return n
}

// Quantiles are the points of Times.Curve, in percent.
var Quantiles = []float64{1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.99}

// Times is a distribution, in microseconds.
type Times struct {
	measure.Latency
	// Curve has the value at each of Quantiles.
	Curve []int64 `json:"curve_us,omitempty"`
}

// TimesOf summarises a histogram.
func TimesOf(h *hdrhistogram.Histogram) Times {
	t := Times{Latency: measure.Summary(h)}
	if t.Count == 0 {
		return t
	}
	t.Curve = make([]int64, len(Quantiles))
	for i, q := range Quantiles {
		t.Curve[i] = h.ValueAtQuantile(q)
	}
	return t
}

// Stamp is a handler's answer: the present moment.
func Stamp() string { return strconv.FormatInt(time.Now().UnixNano(), 10) }

// Work takes as long as a job's handler is to take: a time of an exponential distribution with this
// mean.
func Work(ctx context.Context, mean time.Duration) error {
	if mean == 0 {
		return nil
	}
	return measure.SleepUntil(ctx, time.Now().Add(time.Duration(rand.ExpFloat64()*float64(mean))))
}

// ParseStamp reads a result; quotes around it are taken off.
func ParseStamp(result []byte) (time.Time, error) {
	ns, err := strconv.ParseInt(strings.Trim(string(result), `"`), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("result is no moment: %w", err)
	}
	return time.Unix(0, ns), nil
}

// Payload is what each job carries, as JSON.
func Payload() json.RawMessage {
	return json.RawMessage(`"` + strings.Repeat("x", PayloadBytes-2) + `"`)
}

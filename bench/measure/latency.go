package measure

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	longestLatency     = time.Minute
	significantFigures = 3
)

// Latency summarises a histogram, in microseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_us"`
	P50   int64   `json:"p50_us"`
	P90   int64   `json:"p90_us"`
	P99   int64   `json:"p99_us"`
	P999  int64   `json:"p999_us"`
	Max   int64   `json:"max_us"`
}

// NewHistogram holds 1 us to a minute to three figures.
func NewHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, longestLatency.Microseconds(), significantFigures)
}

// Record counts a latency; one that is off the scale counts as the scale's end.
func Record(h *hdrhistogram.Histogram, d time.Duration) {
	us := min(max(d.Microseconds(), 1), longestLatency.Microseconds())
	if err := h.RecordValue(us); err != nil {
		panic(fmt.Sprintf("histogram refused %d us: %v", us, err))
	}
}

// Summary is what a report keeps of a histogram.
func Summary(h *hdrhistogram.Histogram) Latency {
	return Latency{
		Count: h.TotalCount(),
		Mean:  Rounded(h.Mean()),
		P50:   h.ValueAtQuantile(50),
		P90:   h.ValueAtQuantile(90),
		P99:   h.ValueAtQuantile(99),
		P999:  h.ValueAtQuantile(99.9),
		Max:   h.Max(),
	}
}

// Words is p50 / p99 / p99.9.
func (l Latency) Words() string {
	if l.Count == 0 {
		return "none"
	}
	return Micros(l.P50) + " / " + Micros(l.P99) + " / " + Micros(l.P999)
}

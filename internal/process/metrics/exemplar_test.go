package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func newHistogram(native bool) prometheus.Histogram {
	opts := prometheus.HistogramOpts{Name: "x_seconds", Buckets: prometheus.ExponentialBuckets(20e-6, 2, 18)}
	if native {
		opts.NativeHistogramBucketFactor, opts.NativeHistogramMaxBucketNumber = NativeFactor, NativeBuckets
	}
	return prometheus.NewHistogram(opts)
}

// TestObserve: a kept trace is linked to; whatever else a client sends is not, and does no harm.
func TestObserve(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for parent, want := range map[string]string{
		"00-" + id + "-00f067aa0ba902b7-01": id,
		"00-" + id + "-00f067aa0ba902b7-00": "",
		"":                                  "",
		"00-" + id[:31] + "é-0f067aa0ba902b7-01":  "",
		"00-" + id[:31] + "x-00f067aa0ba902b7-01": "",
		"é" + id + "-00f067aa0ba902b7-0-01":       "",
	} {
		h := newHistogram(true)
		Observe(h, 0.003, parent)
		var m dto.Metric
		if err := h.Write(&m); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, b := range m.GetHistogram().GetBucket() {
			for _, l := range b.GetExemplar().GetLabel() {
				got += l.GetName() + "=" + l.GetValue()
			}
		}
		if want != "" {
			want = "trace_id=" + want
		}
		if h := m.GetHistogram(); got != want || h.GetSampleCount() != 1 || len(h.GetPositiveSpan()) != 1 {
			t.Errorf("of %q the histogram has exemplar %q, %d samples, %d native spans; want %q, 1, 1",
				parent, got, h.GetSampleCount(), len(h.GetPositiveSpan()), want)
		}
	}
}

// BenchmarkObserve compares what a value costs in the forms of a histogram.
func BenchmarkObserve(b *testing.B) {
	const kept = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, c := range []struct {
		name   string
		native bool
		parent string
	}{{"classic", false, ""}, {"native", true, ""}, {"exemplar", true, kept}} {
		b.Run(c.name, func(b *testing.B) {
			h := newHistogram(c.native)
			value := 20e-6
			for b.Loop() {
				if value *= 1.07; value > 1 {
					value = 20e-6
				}
				Observe(h, value, c.parent)
			}
		})
	}
}

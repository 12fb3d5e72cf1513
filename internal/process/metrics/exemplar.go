package metrics

import (
	"encoding/hex"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// NativeFactor and NativeBuckets are the settings of native histograms: each bucket ends 10 %
// behind the one before, and if there are more buckets than these, neighbours are merged.
const (
	NativeFactor  = 1.1
	NativeBuckets = 160
)

// Observe adds a value to a histogram. If the W3C trace context says that the trace is kept, the
// value's bucket links to it. The context may be any text of a client.
func Observe(to prometheus.Observer, value float64, traceParent string) {
	if id := keptTrace(traceParent); id != "" {
		if histogram, ok := to.(prometheus.ExemplarObserver); ok {
			histogram.ObserveWithExemplar(value, prometheus.Labels{"trace_id": id})
			return
		}
	}
	to.Observe(value)
}

// keptTrace returns the id of a trace that is kept; empty for anything else.
func keptTrace(traceParent string) string {
	const form = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	if len(traceParent) != len(form) || !strings.HasPrefix(traceParent, "00-") || !strings.HasSuffix(traceParent, "-01") {
		return ""
	}
	id := traceParent[3:35]
	if _, err := hex.DecodeString(id); err != nil { // an exemplar panics on invalid UTF-8
		return ""
	}
	return id
}

package console

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/freeslot/freeslot/internal/socket"
)

type metrics struct {
	viewers             prometheus.Gauge
	framesIn, framesOut prometheus.Counter
	bytesIn, bytesOut   prometheus.Counter
	computed, closed    *prometheus.CounterVec
	refused             *prometheus.CounterVec
	// pending counts frames for viewers, by what became of them.
	pending [socket.Dropped + 1]prometheus.Counter
}

// newMetrics registers with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counters := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	frames := counters("freeslot_console_frames_total", "WebSocket data frames of the console.", "direction")
	bytes := counters(
		"freeslot_console_bytes_total", "Bytes of the console's data frames, without the WebSocket's own headers.",
		"direction",
	)
	pending := counters("freeslot_console_updates_total",
		"Updates of topics for viewers, by outcome: queued, replaced an update that was not sent yet, dropped because "+
			"too much waits for the viewer.", "outcome")
	m := &metrics{
		viewers: auto.NewGauge(prometheus.GaugeOpts{
			Name: "freeslot_console_viewers", Help: "Pages of the console that are connected, or ask for a snapshot.",
		}),
		framesIn: frames.WithLabelValues("in"), framesOut: frames.WithLabelValues("out"),
		bytesIn: bytes.WithLabelValues("in"), bytesOut: bytes.WithLabelValues("out"),
		computed: counters("freeslot_console_topics_total", "How often topics were computed, for all their viewers at once.",
			"topic"),
		closed:  counters("freeslot_console_closed_total", "Connections of pages that ended, by reason.", "reason"),
		refused: counters("freeslot_console_refused_total", "Connections of pages that were refused, by error code.", "code"),
	}
	for outcome, label := range map[socket.Outcome]string{
		socket.Queued: "queued", socket.Replaced: "replaced", socket.Dropped: "dropped",
	} {
		m.pending[outcome] = pending.WithLabelValues(label)
	}
	m.closed.WithLabelValues(closedSlow) // it exists from the start, so that rate() shows the first one
	return m
}

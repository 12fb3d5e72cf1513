package session

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	open                prometheus.Gauge
	framesIn, framesOut prometheus.Counter
	bytesIn, bytesOut   prometheus.Counter
	messagesOut         prometheus.Counter
	malformed           prometheus.Counter
	closed, refused     *prometheus.CounterVec

	progressSent, progressReplaced, progressDropped prometheus.Counter
}

// The labels of closed sessions.
const (
	closedByClient   = "client_closed"
	closedLost       = "connection_lost"
	closedSlow       = "slow_client"
	closedSilent     = "silent_client"
	closedRights     = "rights"
	closedTooBig     = "frame_too_big"
	closedBinary     = "binary_frame"
	closedNotUTF8    = "not_utf8"
	closedDrained    = "drained"
	closedDrainLimit = "drain_timeout"
	closedStopped    = "stopped"
)

// newMetrics registers with reg, which may be nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	frames := counters("freeslot_session_frames_total", "WebSocket data frames of all sessions.", "direction")
	bytes := counters(
		"freeslot_session_bytes_total", "Bytes of the data frames of all sessions, without the WebSocket's own headers.",
		"direction",
	)
	progress := counters(
		"freeslot_session_progress_total",
		"Progress of jobs for clients, by outcome: sent, replaced by later progress before it was sent, dropped because "+
			"the client reads too slowly.",
		"outcome",
	)
	m := &metrics{
		open: auto.NewGauge(prometheus.GaugeOpts{
			Name: "freeslot_sessions", Help: "WebSocket sessions that are open.",
		}),
		messagesOut: counter("freeslot_session_messages_total", "Messages sent to clients; one frame can hold several."),
		malformed:   counter("freeslot_session_malformed_frames_total", "Frames of clients that were refused as a whole."),
		closed:      counters("freeslot_session_closed_total", "Sessions that ended, by reason.", "reason"),
		refused: counters(
			"freeslot_session_refused_total", "Sessions that were refused before they began, by error code.", "code",
		),
		framesIn: frames.WithLabelValues("in"), framesOut: frames.WithLabelValues("out"),
		bytesIn: bytes.WithLabelValues("in"), bytesOut: bytes.WithLabelValues("out"),
		progressSent: progress.WithLabelValues("sent"), progressReplaced: progress.WithLabelValues("replaced"),
		progressDropped: progress.WithLabelValues("dropped"),
	}
	m.closed.WithLabelValues(closedSlow) // it exists from the start, so that rate() shows the first slow client
	return m
}

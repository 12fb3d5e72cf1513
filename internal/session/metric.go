package session

import "github.com/prometheus/client_golang/prometheus"

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
	closedTooBig     = "frame_too_big"
	closedBinary     = "binary_frame"
	closedNotUTF8    = "not_utf8"
	closedDrained    = "drained"
	closedDrainLimit = "drain_timeout"
	closedStopped    = "stopped"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	frames := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freeslot_session_frames_total", Help: "WebSocket data frames of all sessions.",
	}, []string{"direction"})
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freeslot_session_bytes_total", Help: "Bytes of the data frames of all sessions, without the WebSocket's own headers.",
	}, []string{"direction"})
	progress := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freeslot_session_progress_total", Help: "Progress of jobs for clients, by outcome: sent, replaced by something later that was told before it was sent, dropped because the client reads too slowly.",
	}, []string{"outcome"})
	m := &metrics{
		progressSent: progress.WithLabelValues("sent"), progressReplaced: progress.WithLabelValues("replaced"), progressDropped: progress.WithLabelValues("dropped"),
		open: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "freeslot_sessions", Help: "WebSocket sessions that are open.",
		}),
		messagesOut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freeslot_session_messages_total", Help: "Messages sent to clients; one frame can hold several.",
		}),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "freeslot_session_malformed_frames_total", Help: "Frames of clients that were refused as a whole.",
		}),
		closed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_session_closed_total", Help: "Sessions that ended, by reason.",
		}, []string{"reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "freeslot_session_refused_total", Help: "Sessions that were refused before they began, by error code.",
		}, []string{"code"}),
		framesIn: frames.WithLabelValues("in"), framesOut: frames.WithLabelValues("out"),
		bytesIn: bytes.WithLabelValues("in"), bytesOut: bytes.WithLabelValues("out"),
	}
	// There from the start, so that the first slow client shows in rate().
	m.closed.WithLabelValues(closedSlow)
	if reg != nil {
		reg.MustRegister(m.open, frames, bytes, m.messagesOut, progress, m.malformed, m.closed, m.refused)
	}
	return m
}

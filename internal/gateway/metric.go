package gateway

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	agents                    prometheus.Gauge
	connects, refused, closed *prometheus.CounterVec
	framesIn, framesOut       prometheus.Counter
	bytesIn, bytesOut         prometheus.Counter
	requests, stale           *prometheus.CounterVec
	sent, old, dropped        prometheus.Counter
	together                  *prometheus.HistogramVec
}

// The labels of closed sessions.
const (
	closedByAgent    = "agent_closed"
	closedLost       = "connection_lost"
	closedRefused    = "refused"
	closedCheck      = "check"
	closedDefect     = "defect"
	closedRights     = "rights"
	closedSlow       = "slow_agent"
	closedSilent     = "silent_agent"
	closedSuperseded = "superseded"
	closedReplaced   = "replaced"
	closedCrowded    = "crowded_out"
	closedIdle       = "idle_agent"
	closedDrained    = "drain_timeout"
	closedStopped    = "stopped"
)

// newMetrics registers with reg, which may be nil.
func newMetrics(reg prometheus.Registerer, tokens *Tokens) *metrics {
	auto := promauto.With(reg)
	auto.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "freeslot_gateway_tokens", Help: "Lines of the tokens file."},
		func() float64 { return float64(tokens.Len()) },
	)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	frames := counters("freeslot_gateway_frames_total", "WebSocket data frames of all agents.", "direction")
	bytes := counters(
		"freeslot_gateway_bytes_total", "Bytes of the data frames of all agents, without the WebSocket's own headers.",
		"direction",
	)
	deliveries := counters(
		"freeslot_gateway_deliveries_total",
		"Jobs and cancellations that the streams of the gateway brought, by outcome: sent to the agent; old, so that a "+
			"heartbeat's answer stands for them; or dropped, because their session has ended.",
		"outcome",
	)
	m := &metrics{
		agents: auto.NewGauge(prometheus.GaugeOpts{Name: "freeslot_gateway_agents", Help: "Agents that are connected."}),
		connects: counters(
			"freeslot_gateway_connects_total",
			"Sessions that began, by kind: the first of an agent since it was started, or a reconnect.", "kind",
		),
		refused: counters(
			"freeslot_gateway_refused_total",
			"Agents and their requests over HTTP that were refused at the door, by error code.", "code",
		),
		closed: counters("freeslot_gateway_closed_total", "Connections of agents that ended, by reason.", "reason"),
		requests: counters(
			"freeslot_gateway_requests_total", "Requests of agents, by type and outcome: ok, or an error code.", "type",
			"outcome",
		),
		stale: counters(
			"freeslot_gateway_stale_total", "Reports of jobs that the node does not own, and requests for their specs, by type.",
			"type",
		),
		framesIn: frames.WithLabelValues("in"), framesOut: frames.WithLabelValues("out"),
		bytesIn: bytes.WithLabelValues("in"), bytesOut: bytes.WithLabelValues("out"),
		sent: deliveries.WithLabelValues("sent"), old: deliveries.WithLabelValues("old"),
		dropped: deliveries.WithLabelValues("dropped"),
	}
	m.together = auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "freeslot_gateway_batch_items", Help: "Heartbeats, or ends of jobs, that share a call to Redis, by its script.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 7),
	}, []string{"call"})
	m.closed.WithLabelValues(closedSlow) // it exists from the start, so that rate() shows the first slow agent
	return m
}

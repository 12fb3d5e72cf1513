package registry

import "github.com/prometheus/client_golang/prometheus"

// providerMetrics holds the metrics of a provider. None is labelled by service or instance.
type providerMetrics struct {
	sends   *prometheus.CounterVec // by mode, outcome
	removed prometheus.Counter
}

var instancesDesc = prometheus.NewDesc("freeslot_registry_provider_instances",
	"Instances of this process, by state: registered, pending, conflict, superseded.", []string{"state"}, nil)

func newProviderMetrics(reg prometheus.Registerer, status func() []InstanceStatus) *providerMetrics {
	m := &providerMetrics{
		sends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "freeslot", Subsystem: "registry", Name: "provider_sends_total",
			Help: "Heartbeats, registrations and ends of instances, by mode and outcome: ok, same, content_differs, unknown, " +
				"holder, overloaded, failed.",
		}, []string{"mode", "outcome"}),
		removed: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "freeslot", Subsystem: "registry", Name: "provider_removed_total",
			Help: "Silent instances that this provider has cleaned up.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.sends, m.removed, instances(status))
	}
	return m
}

// mode returns the label for what is sent.
func mode(t task, metrics bool) string {
	switch {
	case t == taskBeat:
		return "heartbeat_only"
	case t == taskMetrics:
		return "metrics_update"
	case t == taskLeave:
		return "deregister"
	case metrics:
		return "full_update"
	default:
		return "metadata_update"
	}
}

func (m *providerMetrics) sent(t task, metrics bool, a answer, err error) {
	outcome := "ok"
	switch {
	case err != nil:
		outcome = "failed"
	case a.code == codeSame && t == taskRegister:
		outcome = "same"
	case a.code == codeDiffer:
		outcome = "content_differs"
	case a.code == codeHolder:
		outcome = "holder"
	case a.code == codeGone:
		outcome = "unknown"
	case a.code == codeFull:
		outcome = "overloaded"
	}
	m.sends.WithLabelValues(mode(t, metrics), outcome).Inc()
}

// instances counts the instances by Status when it is collected.
type instances func() []InstanceStatus

func (instances) Describe(out chan<- *prometheus.Desc) { out <- instancesDesc }

func (f instances) Collect(out chan<- prometheus.Metric) {
	counts := map[string]int{"registered": 0, "pending": 0, "conflict": 0, "superseded": 0}
	for _, s := range f() {
		switch {
		case s.Holder != nil && s.Holder.Superseded:
			counts["superseded"]++
		case s.Holder != nil:
			counts["conflict"]++
		case s.Registered:
			counts["registered"]++
		default:
			counts["pending"]++
		}
	}
	for state, n := range counts {
		out <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(n), state)
	}
}

// Package metrics makes the registry of a process and registers metrics with it.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/freeslot/freeslot/internal/process/version"
)

// NewRegistry returns a registry with the metrics of the Go runtime, the process and its build.
func NewRegistry() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "freeslot_build_info", Help: "Always 1; the version is in the label.",
		ConstLabels: prometheus.Labels{"version": version.String()},
	}, func() float64 { return 1 }))
	return reg
}

// Register registers metrics with reg, which may be nil. It stops at the first error.
func Register(reg prometheus.Registerer, metrics ...prometheus.Collector) error {
	if reg == nil {
		return nil
	}
	for _, m := range metrics {
		if err := reg.Register(m); err != nil {
			return err
		}
	}
	return nil
}

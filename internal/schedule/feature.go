package schedule

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/replica/feature"
	"github.com/freeslot/freeslot/internal/script"
)

// NewFeature is what a replica has of schedules: the loops that make their runs, and the routes that
// manage them. It does no I/O. reg may be nil.
func NewFeature(cfg Config, runners []*script.Runner, markers Markers, jobs Dispatcher, log *zap.Logger, reg prometheus.Registerer) feature.Feature {
	runner := NewRunner(cfg, runners, markers, jobs, log, reg)
	return feature.Feature{
		Step:        feature.Step{Name: "schedules", Start: runner.Start, Stop: runner.Stop},
		Routes:      []api.Routes{routesOf(NewService(runners, cfg.MaxPayloadBytes))},
		SetReplicas: runner.SetReplicas,
	}
}

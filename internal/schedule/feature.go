package schedule

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/replica/feature"
)

// NewFeature is what a replica has of schedules: the loops that make their runs, and the routes that
// manage them. It does no I/O. reg may be nil.
func NewFeature(cfg Config, cells *cell.Set, jobs Dispatcher, log *zap.Logger, reg prometheus.Registerer) feature.Feature {
	runner := NewRunner(cfg, cells, jobs, log, reg)
	return feature.Feature{
		Step:        feature.Step{Name: "schedules", Start: runner.Start, Stop: runner.Stop},
		Routes:      []api.Routes{routesOf(NewService(cells, cfg.MaxPayloadBytes))},
		SetReplicas: runner.SetReplicas,
	}
}

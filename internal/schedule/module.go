package schedule

import (
	"cmp"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/finding"
)

// Module makes the runs of schedules, and serves the routes that manage schedules.
var Module = feature.Module{Name: "schedules", Access: access, New: newPart}

func newPart(env *feature.Env) feature.Part {
	cfg := Config{
		Replica: env.Config.ReplicaID, MaxPayloadBytes: env.Config.Limits.MaxPayloadBytes,
		MarkerRetention: env.Config.IdempotencyRetention,
	}
	runner := NewRunner(cfg, env.Runners, env.Cells, env.Jobs, env.Log.Named("schedule"), env.Metrics)
	bounds := func(tenant string) Bounds {
		t := env.Config.Tenant(tenant)
		return Bounds{
			Schedules: cmp.Or(t.MaxSchedules, DefaultBounds.Schedules), Bytes: cmp.Or(t.MaxScheduleBytes, DefaultBounds.Bytes),
		}
	}
	service := NewService(env.Runners, cfg.MaxPayloadBytes, bounds)
	return feature.Part{
		Step:        feature.Step{Start: runner.Start, Stop: runner.Stop},
		Routes:      []api.Routes{routesOf(service)},
		Findings:    []finding.Source{findings(service, env.Config.Findings.Missed)},
		SetReplicas: runner.SetReplicas,
	}
}

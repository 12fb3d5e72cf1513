package schedule

import (
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
)

// Module makes the runs of schedules, and serves the routes that manage schedules.
var Module = feature.Module{Name: "schedules", Access: access, New: newPart}

func newPart(env *feature.Env) feature.Part {
	cfg := Config{
		Replica: env.Config.ReplicaID, MaxPayloadBytes: env.Config.Limits.MaxPayloadBytes,
		MarkerRetention: env.Config.IdempotencyRetention,
	}
	runner := NewRunner(cfg, env.Runners, env.Cells, env.Jobs, env.Log.Named("schedule"), env.Metrics)
	return feature.Part{
		Step:        feature.Step{Start: runner.Start, Stop: runner.Stop},
		Routes:      []api.Routes{routesOf(NewService(env.Runners, cfg.MaxPayloadBytes))},
		SetReplicas: runner.SetReplicas,
	}
}

package bulk

import (
	"context"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
)

// Module serves operations on many jobs or nodes, and works on them.
var Module = feature.Module{Name: "bulk", Access: access, Schedulers: true, New: newPart}

func newPart(env *feature.Env) feature.Part {
	s := newStore(env.Runners[0])
	var again Again // the routes bring it, before anything starts
	r := newRunner(s, actor{
		jobs: env.Jobs, control: env.Cells,
		again: func(ctx context.Context, tenant, jobID string) error { return again(ctx, tenant, jobID) },
	}, env.Config.ReplicaID, env.Log.Named("bulk"))
	service := &Service{
		store: s, finder: finder{jobs: env.Jobs, byID: env.Cells.JobsByID, nodes: env.Nodes}, wake: r.work,
	}
	return feature.Part{
		Step: feature.Step{Start: r.start, Stop: r.stop},
		Routes: []api.Routes{func(router *api.Router) {
			again = router.Requeue
			routesOf(service)(router)
		}},
		SetReplicas: func([]string) { r.look() },
	}
}

// Package server lets operators see and revoke locks over the HTTP API of a replica. Locks work
// without replicas: applications and `schedctl lock run` talk to Redis alone.
package server

import (
	"context"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/finding"
	"github.com/freeslot/freeslot/internal/lock"
)

// locks lists the methods of *lock.Admin that the routes call.
type locks interface {
	List(ctx context.Context, cursor string, limit int) ([]lock.State, string, error)
	Get(ctx context.Context, key string, waiters int) (lock.State, error)
	Revoke(ctx context.Context, r lock.Revocation) (token int64, err error)
	Audit(ctx context.Context, limit int) ([]lock.Audited, error)
}

// Module adds the operators' routes for locks to a replica. It starts nothing.
var Module = feature.Module{Name: "locks", Access: lock.AdminAccess, New: newPart}

func newPart(env *feature.Env) feature.Part {
	cluster := env.Runners[0].Layout().Sharded
	admin := lock.NewAdmin(env.Commands(0), env.Config.Locks.KeyPrefix, cluster, env.Log.Named("lock"))
	return feature.Part{
		Routes:   []api.Routes{routesOf(admin)},
		Findings: []finding.Source{unrenewed(admin, env.Config.Findings.LockUnrenewed)},
	}
}

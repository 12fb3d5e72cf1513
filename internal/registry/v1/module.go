package v1

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/registry"
)

// Path is where operators see the migration.
const Path = "/admin/registry/v1"

// Module adds the bridge to a replica.
var Module = feature.Module{Name: "registry of version 1", Access: Access, New: newPart}

func newPart(env *feature.Env) feature.Part {
	cfg := &env.Config
	if !cfg.Registry.V1.Enabled {
		return feature.Part{Routes: []api.Routes{routesOf(nil)}}
	}
	log, prefix := env.Log.Named("registry"), registry.Prefix(cfg.Redis.KeyPrefix, cfg.Registry.Namespace)
	store := registry.NewStore(env.Commands(0), prefix, env.Runners[0].Layout().Sharded, log)
	b := New(Config{
		Self: cfg.ReplicaID, KeyPrefix: cfg.Registry.V1.KeyPrefix, Prefix: prefix, WriteBack: cfg.Registry.V1.WriteBack,
	}, env.Commands(0), store, log)
	return feature.Part{
		Step:   feature.Step{Start: b.Start, Stop: b.Stop},
		Routes: []api.Routes{routesOf(b)}, SetReplicas: b.SetReplicas,
	}
}

// Migration says how far the migration is.
type Migration struct {
	WriteBack bool     `json:"write_back" doc:"Whether instances are written back for old consumers: registry.v1.write_back."`
	Services  []Status `json:"services" doc:"The services that have keys of the first version, in the order of their names."`
}

// Finished says what a finished migration has removed.
type Finished struct {
	Services int `json:"services" doc:"How many services had keys of the first version."`
}

type output[T any] struct{ Body T }

// routesOf returns the operators' routes. b is nil if the bridge is off.
func routesOf(b *Bridge) api.Routes {
	return func(r *api.Router) {
		op := func(id, method, path, summary, text string) huma.Operation {
			return huma.Operation{
				OperationID: id, Method: method, Path: path, Tags: []string{"registry"}, Summary: summary, Description: text,
			}
		}
		huma.Register(r, op("get-migration", http.MethodGet, Path, "Show how far the migration from version 1 is", ""),
			func(ctx context.Context, _ *struct{}) (*output[Migration], error) {
				return handle(ctx, r, b, "migration", func(ctx context.Context) (out Migration, err error) {
					out.WriteBack = b.cfg.WriteBack
					out.Services, err = b.Status(ctx)
					return out, err
				})
			})
		huma.Register(r, op("finish-migration", http.MethodPost, Path+"/finish", "Finish the migration from version 1",
			"Removes the copies and the keys of version 1. Refused while its providers beat, or instances are written back."),
			func(ctx context.Context, _ *struct{}) (*output[Finished], error) {
				return handle(ctx, r, b, "finish the migration", func(ctx context.Context) (out Finished, err error) {
					out.Services, err = b.Finish(ctx)
					return out, err
				})
			})
	}
}

func handle[Out any](
	ctx context.Context, r *api.Router, b *Bridge, what string, do func(context.Context) (Out, error),
) (*output[Out], error) {
	if b == nil {
		return nil, r.Refuse(what, conflict("registry.v1.enabled is off"))
	}
	ctx, cancel := context.WithTimeout(ctx, api.CallTimeout)
	defer cancel()
	out, err := do(ctx)
	if err != nil {
		return nil, r.Refuse(what, err)
	}
	return &output[Out]{Body: out}, nil
}

// Package server adds the service registry to a replica: routes for operators and for programs in
// other languages, cleanup, and checks.
package server

import (
	"context"
	"errors"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/centre"
)

// Module adds the registry to a replica. Its needs in Redis are registry.Access.
var Module = feature.Module{Name: "registry", New: newPart}

func newPart(env *feature.Env) feature.Part {
	cfg, log := &env.Config, env.Log.Named("registry")
	prefix := registry.Prefix(cfg.Redis.KeyPrefix, cfg.Registry.Namespace)
	store := registry.NewStore(env.Commands(0), prefix, env.Runners[0].Layout().Sharded, log)
	options := consumerOptions(cfg)
	options.Logger, options.Registerer = log, env.Metrics
	consumer, invalid := registry.NewConsumer(options)
	c := centre.New(
		centre.Config{Self: cfg.ReplicaID, Networks: cfg.Registry.Checks.Prefixes(), Probes: env.Probes}, store, log,
		env.Metrics,
	)
	self := newSelf(env, store)
	start := func(ctx context.Context) error {
		if invalid != nil {
			return invalid
		}
		consumer.StartOn(store)
		return errors.Join(self.start(ctx), c.Start(ctx))
	}
	stop := func(ctx context.Context) error { return errors.Join(self.stop(ctx), c.Stop(ctx), consumer.Stop(ctx)) }
	return feature.Part{
		Step:   feature.Step{Start: start, Stop: stop},
		Routes: []api.Routes{routesOf(store, consumer, env.Nodes.States)}, SetReplicas: c.SetReplicas,
	}
}

package pool

import (
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/selection"
)

// Module adds the configuration of pools to a replica: the replica follows it and serves the
// routes of the configuration, of pools and of pauses.
var Module = feature.Module{
	Name: "pools", Access: access, New: newPart,
	BeforeJobs: true, // no job may begin by pools that are not in force
}

// startPatience bounds how long a start waits for the configuration when its server may be down
// while others serve.
const startPatience = 2 * time.Second

func newPart(env *feature.Env) feature.Part {
	cfg := Config{
		File: env.Config.Selection(), NoEvents: !env.Config.Cache.PubSub,
		OnChange: func(next *selection.Config) {
			env.Nodes.SetConfig(next)
			env.Jobs.ConfigChanged()
		},
	}
	if env.Config.Redis.Cells > 1 {
		cfg.StartPatience = startPatience
	}
	store := NewStore(env.Runners[0])
	pools := New(cfg, store, env.Subscriber(0), env.Log.Named("pool"), env.Metrics)
	nodes := func() (all []freeslot.Node) {
		for _, s := range env.Nodes.States() {
			all = append(all, s.Node)
		}
		return all
	}
	return feature.Part{
		Step:   feature.Step{Start: pools.Start, Stop: pools.Stop},
		Routes: []api.Routes{routes{store: store, pools: pools, nodes: nodes, fence: env.Jobs}.register},
		Checks: []api.Check{{Name: "pools", Ready: pools.Ready}},
	}
}

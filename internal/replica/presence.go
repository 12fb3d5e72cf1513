package replica

import (
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/selection"
)

// newPresence makes choices try this replica's share of the fleet first, and makes this replica
// match free nodes of its share with waiting jobs.
func newPresence(
	cfg config.Replica, fleet *fleet, d *dispatch.Dispatcher, parts feature.Parts, log *zap.Logger,
) *presence.Presence {
	all := parts.All()
	return presence.New(presence.Config{
		Replica: cfg.ReplicaID, HeartbeatLimit: cfg.HeartbeatLimit,
		OnChange: func(replicas []string) {
			fleet.cache.SetShare(selection.NewShare(cfg.ReplicaID, replicas))
			d.SetReplicas(replicas)
			for _, p := range all {
				if p.SetReplicas != nil {
					p.SetReplicas(replicas)
				}
			}
		},
	}, presence.NewStore(fleet.cells.At(0).Runner()), log.Named("presence"))
}

package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/feature"
	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/selection"
)

// newPresence makes choices try this replica's share of the fleet first, and makes this replica
// match free nodes of its share with waiting jobs.
func newPresence(
	cfg config.Replica, fleet *fleet, d *dispatch.Dispatcher, parts feature.Parts, past *history.Keeper,
	self *selfStatus, store *presence.Store, log *zap.Logger, reg prometheus.Registerer,
) *presence.Presence {
	newGauges(fleet, d, reg)
	all := parts.All()
	return presence.New(presence.Config{
		Replica: cfg.ReplicaID, HeartbeatLimit: cfg.HeartbeatLimit,
		Figures: newSampler(fleet, d, past != nil).figures, OnAnswer: observe(fleet.cache, past),
		Status: func() string { return self.next(past != nil) },
		OnChange: func(replicas []string) {
			fleet.cache.SetShare(selection.NewShare(cfg.ReplicaID, replicas))
			d.SetReplicas(replicas)
			for _, p := range all {
				if p.SetReplicas != nil {
					p.SetReplicas(replicas)
				}
			}
		},
	}, store, log.Named("presence"))
}

func newPresenceStore(f *fleet) *presence.Store { return presence.NewStore(f.cells.At(0).Runner()) }

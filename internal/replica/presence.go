package replica

import (
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/cron"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/selection"
)

// newPresence has choices try this replica's share of the fleet first, and this replica
// match free nodes of its share with jobs that wait.
func newPresence(cfg config.Replica, f *fleet, d *dispatch.Dispatcher, runs *cron.Runner, log *zap.Logger) *presence.Presence {
	return presence.New(presence.Config{Replica: cfg.ReplicaID, OnChange: func(replicas []string) {
		f.cache.SetShare(selection.NewShare(cfg.ReplicaID, replicas))
		d.SetReplicas(replicas)
		runs.SetReplicas(replicas)
	}}, f.cells.At(0), log.Named("presence"))
}

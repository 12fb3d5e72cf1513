package replica

import (
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/presence"
)

// newDemand makes what keeps the demand of the whole system up to date.
func newDemand(
	f *fleet, d *dispatch.Dispatcher, replicas *presence.Store, log *zap.Logger, reg prometheus.Registerer,
) *demand.Watch {
	w := demand.NewWatch(d, f.cache, replicas.Statuses, log.Named("demand"))
	reg.MustRegister(w.Collector())
	return w
}

package replica

import (
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/audit"
	"github.com/freeslot/freeslot/internal/autoscale"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/presence"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// newDemand makes what keeps the demand of the whole system up to date.
func newDemand(
	f *fleet, d *dispatch.Dispatcher, replicas *presence.Store, log *zap.Logger, reg prometheus.Registerer,
) *demand.Watch {
	w := demand.NewWatch(d, f.cache, replicas.Statuses, log.Named("demand"))
	reg.MustRegister(w.Collector())
	return w
}

// newScaler makes what runs the configured command for more and fewer nodes; nil without one.
func newScaler(cfg config.Replica, f *fleet, w *demand.Watch, changes *audit.Log, log *zap.Logger) *autoscale.Scaler {
	command := cfg.Autoscale.Exec
	if !command.On() {
		return nil
	}
	env := []string{} // nil would mean all of the scheduler's variables
	for _, name := range command.PassEnv {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return autoscale.New(autoscale.Config{
		Argv: command.Argv, Env: env, Pools: command.Pools, MinNodes: command.MinNodes, MaxNodes: command.MaxNodes,
		Cooldown: command.Cooldown, Timeout: command.Timeout, Replica: cfg.ReplicaID, Demand: w.Current,
		Silent: func() bool { return len(f.cache.Silent(f.cache.SilenceLimit())) > 0 }, Audit: changes,
		Log: log.Named("autoscale"),
	}, f.cells.Runners()[0])
}

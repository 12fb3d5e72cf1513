package replica

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/admission"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/demand"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/tenant"
)

func newDispatcher(
	cfg config.Replica, f *fleet, gate *admission.Gate, meter *tenant.Meter, kinds *demand.Meter, log *zap.Logger,
	reg prometheus.Registerer,
) (*dispatch.Dispatcher, error) {
	var admit func(*dispatch.Request) error
	if gate != nil {
		admit = gate.Admit
	}
	grace := cfg.MoveGrace
	if grace == 0 {
		grace = -1 // never
	}
	return dispatch.New(
		dispatch.Config{
			Replica: cfg.ReplicaID, Weight: cfg.TenantWeight, MoveGrace: grace, Limits: tenantLimits(cfg), Admit: admit,
			Rates: submitRates(cfg), DefaultRate: rateOf(cfg.TenantDefaults), Submitted: meter.Count,
			Came: kinds.Came, Ran: kinds.Ran,
		},
		f.cells, f.nodes, log.Named("dispatch"), reg,
	)
}

// tenantLimits returns a function that is called for every job.
func tenantLimits(cfg config.Replica) func(string) dispatch.Limits {
	several := cfg.SeveralTenants()
	limitsOf := func(t config.Tenant) dispatch.Limits {
		limits := dispatch.Limits{Running: t.MaxRunning, Waiting: t.MaxWaiting}
		if several {
			limits.Kinds = cmp.Or(t.MaxKinds, config.DefaultMaxKinds)
		}
		if t.MaxPriority != nil {
			limits.Priorities = *t.MaxPriority + 1
		}
		return limits
	}
	named, others := make(map[string]dispatch.Limits), limitsOf(cfg.TenantDefaults)
	for name, t := range cfg.Tenants {
		named[name] = limitsOf(t)
	}
	return func(tenant string) dispatch.Limits {
		if own, ok := named[tenant]; ok {
			return own
		}
		return others
	}
}

// acknowledge returns how many of Redis' replicas must have a job before it counts as accepted.
func acknowledge(cfg config.Replica) script.Acknowledge {
	if cfg.Acknowledge != config.AcknowledgeReplicated {
		return script.Acknowledge{}
	}
	return script.Acknowledge{Replicas: cfg.AcknowledgeReplicas, Timeout: cfg.AcknowledgeTimeout}
}

// durability returns the checks of readiness about it: a replica that can accept no job is not
// ready. It starts all the same, because it can still serve running jobs.
func durability(cfg config.Replica, d *dispatch.Dispatcher) []api.Check {
	if acknowledge(cfg).Replicas == 0 {
		return nil
	}
	return []api.Check{{Name: "replicas", Ready: d.Replicated}}
}

// submitRates returns the rates of the tenants that are configured.
func submitRates(cfg config.Replica) map[string]cell.Rate {
	rates := make(map[string]cell.Rate)
	for name, t := range cfg.Tenants {
		if rates[name] = (cell.Rate{}); rateOf(t) != nil {
			rates[name] = *rateOf(t)
		}
	}
	return rates
}

// rateOf returns nil for a tenant without a rate.
func rateOf(t config.Tenant) *cell.Rate {
	perSecond, burst, ok := t.Rate()
	if !ok {
		return nil
	}
	return &cell.Rate{PerSecond: perSecond, Burst: burst}
}

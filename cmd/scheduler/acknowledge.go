package main

import (
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/config"
	"github.com/freeslot/freeslot/internal/dispatch"
)

// acknowledge says who must have a job before it counts as accepted.
func acknowledge(cfg config.Replica) cell.Acknowledge {
	if cfg.Acknowledge != config.AcknowledgeReplicated {
		return cell.Acknowledge{}
	}
	return cell.Acknowledge{Replicas: cfg.AcknowledgeReplicas, Timeout: cfg.AcknowledgeTimeout}
}

// durability is the part of readiness that is about it: a replica that can accept no job is
// not ready. The start is not refused, because what is running can still be served.
func durability(cfg config.Replica, d *dispatch.Dispatcher) []api.Check {
	if acknowledge(cfg).Replicas == 0 {
		return nil
	}
	return []api.Check{{Name: "replicas", Ready: d.Replicated}}
}

// submitRates are of the tenants that have one.
func submitRates(cfg config.Replica) map[string]cell.Rate {
	rates := make(map[string]cell.Rate)
	for name, t := range cfg.Tenants {
		if perSecond, burst, ok := t.Rate(); ok {
			rates[name] = cell.Rate{PerSecond: perSecond, Burst: burst}
		}
	}
	return rates
}

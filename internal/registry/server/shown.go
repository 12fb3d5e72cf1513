package server

import (
	"encoding/json"
	"time"

	"github.com/freeslot/freeslot/internal/registry"
)

// RegistryService describes a service to operators.
type RegistryService struct {
	// The tags document Name and the rest for readers of the API.
	Name      string `json:"name"`
	Instances int64  `json:"instances"`
	Late      int64  `json:"late" doc:"Instances without a heartbeat for the limit."`
	Revision  int64  `json:"revision" doc:"Grows with each change; for waiting."`
	Why       string `json:"why,omitempty" doc:"Why there is no instance."`
	Guard     string `json:"guard,omitempty" doc:"Why silent instances are not removed."`
	LimitMS   int64  `json:"limit_ms" doc:"How long an instance may be silent before it is removed."`
	EveryMS   int64  `json:"every_ms" doc:"The pause between cleanups."`
}

// RegistryInstance describes an instance to operators.
type RegistryInstance struct {
	// The tags document Service and the rest for readers of the API.
	Service      string             `json:"service"`
	ID           string             `json:"id"`
	Host         string             `json:"host"`
	Port         int                `json:"port"`
	Protocol     string             `json:"protocol"`
	Healthy      bool               `json:"healthy" doc:"Whether it should get traffic. Each consumer also judges by its own timeout whether the instance is late."`
	Weight       float64            `json:"weight"`
	Enabled      bool               `json:"enabled"`
	Draining     bool               `json:"draining"`
	Unhealthy    bool               `json:"unhealthy,omitempty" doc:"It says itself that it is not well."`
	Failing      string             `json:"failing,omitempty" doc:"Why its checks fail."`
	Persistent   bool               `json:"persistent,omitempty"`
	IntervalMS   int64              `json:"interval_ms"`
	BeatMS       int64              `json:"beat_ms,omitempty" doc:"Its last heartbeat by the store's clock, in milliseconds since 1970."`
	DelayMS      int64              `json:"delay_ms,omitempty" doc:"Milliseconds since its last heartbeat."`
	RegisteredMS int64              `json:"registered_ms"`
	Revision     int64              `json:"revision"`
	Epoch        string             `json:"epoch,omitempty"`
	Origin       string             `json:"origin,omitempty" doc:"v1 for a copy of an instance of the first version of the registry."`
	Metadata     map[string]string  `json:"metadata,omitempty"`
	Check        *registry.Check    `json:"check,omitempty"`
	Override     *registry.Override `json:"override,omitempty" doc:"What an operator has set; weight, enabled and draining above have it applied."`
	Metrics      json.RawMessage    `json:"metrics,omitempty" doc:"Its last figures by type."`
}

// Discovered describes an instance to other programs.
type Discovered struct {
	ID       string            `json:"id"`
	Host     string            `json:"host"`
	Port     int               `json:"port"`
	Protocol string            `json:"protocol"`
	Weight   float64           `json:"weight"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// Discovery holds the healthy instances of a service, with the reason for its state.
type Discovery struct {
	// The tags document Service and the rest for readers of the API.
	Service    string       `json:"service"`
	State      string       `json:"state" doc:"live, stale, rebuilding, protected, disk or empty."`
	Why        string       `json:"why,omitempty"`
	Revision   int64        `json:"revision"`
	Version    string       `json:"version" doc:"Changes with everything here; for waiting."`
	LastResort bool         `json:"last_resort,omitempty" doc:"No other instance is left than late ones."`
	Instances  []Discovered `json:"instances"`
}

func shownService(s *registry.Summary) RegistryService {
	return RegistryService{
		Name: s.Service, Instances: s.Instances, Late: s.Late, Revision: s.Revision, Why: s.Why, Guard: s.Guard,
		LimitMS: s.Limit.Milliseconds(), EveryMS: s.Every.Milliseconds(),
	}
}

func shownInstance(d *registry.Detail, now time.Time) RegistryInstance {
	out := RegistryInstance{
		Service: d.Service, ID: d.ID, Host: d.Host, Port: d.Port, Protocol: d.Protocol, Healthy: d.Healthy(),
		Weight:  d.Weight,
		Enabled: !d.Disabled, Draining: d.Draining, Unhealthy: d.Unhealthy, Failing: d.Failing, Persistent: d.Persistent,
		IntervalMS: d.Interval.Milliseconds(), RegisteredMS: d.RegisteredAt.UnixMilli(), Revision: d.Revision, Epoch: d.Epoch,
		Origin: d.Origin, Metadata: d.Metadata, Check: d.Check, Override: d.Override, Metrics: d.Metrics,
	}
	if !d.Persistent {
		out.BeatMS, out.DelayMS = d.BeatAt.UnixMilli(), now.Sub(d.BeatAt).Milliseconds()
	}
	return out
}

func discovery(l *registry.List) Discovery {
	out := Discovery{
		Service: l.Service, State: string(l.State), Why: l.Why, Revision: l.Revision, Version: versionOf(l),
		LastResort: l.Last, Instances: []Discovered{},
	}
	for _, i := range l.Instances {
		out.Instances = append(
			out.Instances,
			Discovered{ID: i.ID, Host: i.Host, Port: i.Port, Protocol: i.Protocol, Weight: i.Weight, Metadata: i.Metadata},
		)
	}
	return out
}

package nodeagent

import (
	"maps"
	"slices"
	"time"

	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/worker"
)

// maxMetadataInterval bounds the age of figures.
const maxMetadataInterval = time.Hour

// ChangeThreshold decides which changes of a figure are sent at once.
type ChangeThreshold struct {
	// In the figure's unit, or in percent of the value that was sent last.
	Threshold float64 `koanf:"threshold"`
	// `absolute`, `percent` or `any`: every change.
	Type string `koanf:"type"`
}

// defaultThresholds returns the defaults of package worker.
func defaultThresholds() map[string]ChangeThreshold {
	out := map[string]ChangeThreshold{}
	for name, t := range worker.DefaultThresholds() {
		out[name] = ChangeThreshold{Threshold: t.Value, Type: string(t.Kind)}
	}
	return out
}

func (t ChangeThreshold) worker() worker.Threshold {
	return worker.Threshold{Kind: worker.ThresholdKind(t.Type), Value: t.Threshold}
}

// validateHeartbeats records every value that cannot be used.
func (c *Config) validateHeartbeats(p *config.Problems) {
	if !p.Has("heartbeat_interval") {
		p.DurationBetween("metadata_interval", c.MetadataInterval, c.HeartbeatInterval, maxMetadataInterval)
	}
	for _, name := range slices.Sorted(maps.Keys(c.ChangeThresholds)) {
		at, t := "change_thresholds."+name, c.ChangeThresholds[name]
		p.OneOf(at+".type", t.Type, string(worker.Absolute), string(worker.Percent), string(worker.AnyChange))
		t.Type = string(worker.AnyChange)
		p.Add(at+".threshold", t.worker().Validate())
		if _, always := worker.DefaultThresholds()[name]; !always { // defaults stay without their collector
			p.Add(at, collector.CheckFigure(name, c.Metrics.known()))
		}
	}
}

// newWorker makes a worker whose heartbeats bring the configured figures.
func (c *Config) newWorker(cfg worker.Config) (w *worker.Worker, err error) {
	// Collectors are not called before the worker runs.
	entries, err := c.Metrics.Collectors(func() (time.Duration, bool) { return w.RedisLatency() })
	if err != nil {
		return nil, err
	}
	cfg.Collectors = append([]worker.Collection{}, entries...) // never nil, which means the default
	cfg.MetadataInterval, cfg.DisableImmediateUpdate = c.MetadataInterval, !c.ImmediateUpdate
	cfg.Thresholds = make(map[string]worker.Threshold, len(c.ChangeThresholds))
	for name, t := range c.ChangeThresholds {
		cfg.Thresholds[name] = t.worker()
	}
	return worker.New(cfg)
}

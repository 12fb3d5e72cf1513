package worker

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

func TestConfigValidateNamesEveryBadField(t *testing.T) {
	_, err := New(Config{
		KeyPrefix: "a b", HeartbeatInterval: time.Millisecond, StopTimeout: -1, InterruptGrace: -1, MetadataInterval: -1,
		Thresholds: map[string]Threshold{"x.y": {Kind: "relative"}}, Collectors: []Collection{{}},
		MaxResultBytes: -1, Cells: -1,
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, field := range []string{"redis_url", "cells", "key_prefix", "node.node_id", "heartbeat_interval", "stop_timeout", "interrupt_grace", "max_result_bytes", "metadata_interval", "change_thresholds.x.y", "collectors[0]"} {
		if !strings.Contains(err.Error(), field+" ") {
			t.Errorf("%s is not named in:\n%v", field, err)
		}
	}
}

func TestConfigDefaults(t *testing.T) {
	c := Config{RedisURL: "redis://127.0.0.1", Node: freeslot.Node{ID: "n", MaxConcurrency: 1}}.WithDefaults()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	if c.KeyPrefix != "scheduler" || c.HeartbeatInterval != 3*time.Second || c.MetadataInterval != time.Minute || len(c.Thresholds) != 2 || len(c.Collectors) != 2 || c.MaxResultBytes != 1<<20 || c.Logger == nil || c.TracerProvider == nil {
		t.Fatalf("%+v", c)
	}
}

// TestUnknownThreshold: it is refused at the start, when all collectors are known.
func TestUnknownThreshold(t *testing.T) {
	t.Parallel()
	start := func(name string) error {
		thresholds := map[string]Threshold{"memory.usage": {Kind: Absolute, Value: 0.2}, name: {Kind: AnyChange}}
		w, err := New(Config{
			RedisURL: "redis://127.0.0.1:1", Node: freeslot.Node{ID: "n", MaxConcurrency: 1}, Thresholds: thresholds, Collectors: []Collection{},
		})
		if err != nil {
			t.Fatal(err)
		}
		w.Collect(&gauge{name: "x"})
		w.Collect(RedisCollector(w))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return w.Start(ctx)
	}
	const want = "invalid_argument: change_thresholds.y.level is not a figure of a collector that runs here, expected one of redis.latency_ms, x.*"
	if err := start("y.level"); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, name := range []string{"x.level", "redis.latency_ms"} {
		if err := start(name); err == nil || strings.Contains(err.Error(), "change_thresholds") {
			t.Errorf("%s: %v, expected that Redis does not answer", name, err)
		}
	}
}

package worker

import (
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

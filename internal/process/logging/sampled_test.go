package logging

import (
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestSampled: a flood of one event hides no other event.
func TestSampled(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	log := Sampled(zap.New(core))
	for i := range 1000 {
		log.Warn("redis.call_failed", zap.Int("call", i))
	}
	log.Warn("http.call_failed")
	if n := logs.FilterMessage("redis.call_failed").Len(); n != sampledLines || logs.FilterMessage("http.call_failed").Len() != 1 {
		t.Errorf("%d lines of the flood, %d in all", n, logs.Len())
	}
}

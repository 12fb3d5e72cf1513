package collector

import (
	"context"
	"time"
)

// RedisLatency collects "redis": latency_ms, the time between a command and its answer.
type RedisLatency struct {
	last func() (time.Duration, bool)
}

// NewRedisLatency returns a collector that asks last for the round trip of the last
// answered command, and false as long as there was none; so it costs Redis nothing.
// last must be safe for concurrent use.
func NewRedisLatency(last func() (time.Duration, bool)) *RedisLatency {
	return &RedisLatency{last: last}
}

// Type is "redis".
func (*RedisLatency) Type() string { return "redis" }

// Available is true.
func (*RedisLatency) Available(context.Context) bool { return true }

// Cost is CostLow.
func (*RedisLatency) Cost() Cost { return CostLow }

// Collect has no figures before the first answer.
func (r *RedisLatency) Collect(context.Context) (Metrics, error) {
	took, ok := r.last()
	if !ok {
		return Metrics{}, nil
	}
	return Metrics{"latency_ms": rounded(float64(took) / float64(time.Millisecond))}, nil
}

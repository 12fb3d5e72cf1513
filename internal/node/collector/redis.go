package collector

import (
	"context"
	"time"
)

// RedisLatency collects "redis": latency_ms, the time between a command and its answer.
type RedisLatency struct {
	builtIn
	last func() (time.Duration, bool)
}

// NewRedisLatency returns a collector that gets the round trip of the last answered command from
// last, so it costs Redis nothing. last returns false before the first answer. It must be safe for
// concurrent use.
func NewRedisLatency(last func() (time.Duration, bool)) *RedisLatency {
	return &RedisLatency{builtIn: builtIn{"redis", CostLow, []string{"latency_ms"}}, last: last}
}

// Collect returns no figures before the first answer.
func (r *RedisLatency) Collect(context.Context) (Metrics, error) {
	took, ok := r.last()
	if !ok {
		return Metrics{}, nil
	}
	return Metrics{"latency_ms": rounded(float64(took) / float64(time.Millisecond))}, nil
}

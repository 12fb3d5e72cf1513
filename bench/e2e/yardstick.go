package main

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/rueidis"

	"github.com/freeslot/freeslot/bench/measure"
)

const (
	idleProbes    = 3000
	probeInterval = 5 * time.Millisecond
)

// yardstick measures the round trip of a bare script call on a client of its own. It calls EVALSHA_RO:
// the same work for Redis as EVALSHA, and counted apart from what is being measured.
type yardstick struct {
	client rueidis.Client
	script *rueidis.Lua
}

func newYardstick(client rueidis.Client) *yardstick {
	return &yardstick{client: client, script: rueidis.NewLuaScriptReadOnly("return 1")}
}

func (y *yardstick) once(ctx context.Context, h *hdrhistogram.Histogram) error {
	ctx, cancel := context.WithTimeout(ctx, measure.CallTimeout)
	defer cancel()
	begin := time.Now()
	if err := y.script.Exec(ctx, y.client, nil, nil).Error(); err != nil {
		return fmt.Errorf("bare EVALSHA: %w", err)
	}
	measure.Record(h, time.Since(begin))
	return nil
}

// idle calls one after the other. The first call loads the script and is not counted.
func (y *yardstick) idle(ctx context.Context) (measure.Latency, error) {
	h := measure.NewHistogram()
	for i := range idleProbes + 1 {
		if i == 1 {
			h.Reset()
		}
		if err := y.once(ctx, h); err != nil {
			return measure.Latency{}, err
		}
	}
	return measure.Summary(h), nil
}

// during calls at a fixed pace until ctx ends, and returns what it measured until then.
func (y *yardstick) during(ctx context.Context) (measure.Latency, error) {
	h := measure.NewHistogram()
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return measure.Summary(h), nil
		case <-tick.C:
		}
		// A call that is under way when ctx ends is still counted.
		if err := y.once(context.WithoutCancel(ctx), h); err != nil {
			return measure.Summary(h), err
		}
	}
}

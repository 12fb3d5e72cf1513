package dev

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot/registry"
)

const (
	serviceName      = "demo-api"
	serviceInstances = 3
	serviceInterval  = 5 * time.Second
	// Nothing listens on the ports from servicePort on: no one calls the service.
	servicePort = 9101
	// sickEvery and sickFor are counted in intervals. The last instance is unhealthy for sickFor of
	// them, then healthy for the rest of sickEvery.
	sickEvery, sickFor = 24, 4
	// tide is how long the figures take to rise and to fall again.
	tide = 4 * time.Minute
)

// startService registers instances of a service. Their figures rise and fall, and one of them is
// unhealthy now and then.
func (l *load) startService(ctx, running context.Context) error {
	for i := range serviceInstances {
		calls := registry.NewCalls()
		p, err := registry.NewProvider(registry.Options{
			RedisURL: l.s.redis.url, StopPause: -1, Logger: l.s.cfg.Logger,
			Collectors: []registry.Collection{
				{Collector: calls, Interval: serviceInterval}, {Collector: traffic{i}, Interval: serviceInterval},
			},
		})
		if err != nil {
			return err
		}
		if err := p.Start(ctx); err != nil {
			return err
		}
		l.ends = append(l.ends, p.Stop)
		l.every(running, serviceInterval, func(n int) {
			took := 5 + 40*wave(i, time.Now()) + 20*rand.Float64()
			calls.Add("demo-storage", time.Duration(took*float64(time.Millisecond)), nil)
			if n == 0 || i == serviceInstances-1 && (n%sickEvery == 0 || n%sickEvery == sickEvery-sickFor) {
				// The provider goes on trying by itself.
				_ = p.Register(running, instance(i, n))
			}
		})
	}
	return nil
}

// instance returns the i-th instance as it is in its n-th interval.
func instance(i, n int) registry.Registration {
	return registry.Registration{
		Service: serviceName, Host: "127.0.0.1", Port: servicePort + i, Protocol: "HTTP", Interval: serviceInterval,
		Unhealthy: i == serviceInstances-1 && n%sickEvery >= sickEvery-sickFor,
		Metadata:  map[string]string{"zone": fmt.Sprint("zone-", 1+i%2), "version": "1.4.2"},
	}
}

// wave returns a number from 0 to 1 that rises and falls. The instances are not in step.
func wave(i int, at time.Time) float64 {
	turns := float64(at.UnixMilli())/float64(tide.Milliseconds()) + float64(i)/serviceInstances
	return (1 + math.Sin(2*math.Pi*turns)) / 2
}

// traffic collects invented figures of the i-th instance.
type traffic struct{ i int }

func (traffic) Type() string                   { return "traffic" }
func (traffic) Available(context.Context) bool { return true }
func (traffic) Cost() registry.Cost            { return registry.CostLow }

func (c traffic) Collect(context.Context) (registry.Metrics, error) {
	rate := 20 + 60*wave(c.i, time.Now())
	return registry.Metrics{
		"requests_per_second": math.Round(10*rate) / 10,
		"open_connections":    int64(rate/4) + rand.Int64N(4),
	}, nil
}

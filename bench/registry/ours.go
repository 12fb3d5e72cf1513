package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/bench/measure"
	"github.com/freeslot/freeslot/bench/registry/entrant"
	"github.com/freeslot/freeslot/bench/tool"
	"github.com/freeslot/freeslot/internal/registry"
)

const (
	stopLimit = 10 * time.Second
	// quiet is an interval at which a provider's own heartbeats do not disturb: the longest.
	quiet = registry.MaxHeartbeatInterval
)

// payloadLabel is where the payload of a change is, in all registries.
const payloadLabel = "payload"

// ours is a provider, and a consumer from the first Watch on.
type ours struct {
	url      string
	provider *registry.Provider
	consumer *registry.Consumer
	stop     func() error // of consumer
}

func openOurs(ctx context.Context, addr string) (entrant.Registry, error) {
	o := &ours{url: "redis://" + addr}
	var err error
	o.provider, err = startProvider(ctx, o.url)
	return o, err
}

// startProvider starts one that does not say that it leaves.
func startProvider(ctx context.Context, url string) (*registry.Provider, error) {
	p, err := registry.NewProvider(registry.Options{RedisURL: url, StopPause: -1})
	if err != nil {
		return nil, err
	}
	return p, p.Start(ctx)
}

// startConsumer returns one and how to stop it.
func startConsumer(ctx context.Context, url string, timeout time.Duration) (*registry.Consumer, func() error) {
	c := tool.Must(registry.NewConsumer(registry.ConsumerOptions{RedisURL: url, Timeout: timeout}))
	tool.Check(c.Start(ctx))
	return c, bounded(c.Stop)
}

// bounded gives a stop its time.
func bounded(stop func(context.Context) error) func() error {
	return func() error {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
		defer cancel()
		return stop(ctx)
	}
}

func registration(service, id, payload string) registry.Registration {
	return registry.Registration{
		Service: service, ID: id, Host: "10.0.0.1", Port: 8080, Interval: quiet,
		Metadata: map[string]string{"version": "1.0.0", "zone": "a", payloadLabel: payload},
	}
}

func (o *ours) Register(ctx context.Context, service, id string) error {
	return o.provider.Register(ctx, registration(service, id, ""))
}

func (o *ours) Beat(ctx context.Context, service, id string) error {
	return o.provider.Heartbeat(ctx, service, id)
}

func (o *ours) BeatAll(ctx context.Context) (int, error) {
	results, err := o.provider.HeartbeatAll(ctx)
	for i := range results {
		err = errors.Join(err, results[i].Err)
	}
	return len(results), err
}

func (o *ours) Change(ctx context.Context, service, id, payload string) error {
	return o.provider.Register(ctx, registration(service, id, payload))
}

// Watch has one listener for each call, on the same consumer.
func (o *ours) Watch(ctx context.Context, service string, see func(payload string)) error {
	return tool.Try(func() {
		if o.consumer == nil {
			o.consumer, o.stop = startConsumer(ctx, o.url, 0)
		}
		tool.Must(o.consumer.AllInstances(ctx, service))
		var last *registry.Instance
		tool.Must(o.consumer.Subscribe(service, func(l *registry.List) {
			for _, in := range l.Instances {
				if payload := in.Metadata[payloadLabel]; payload != "" {
					if in != last {
						last = in
						see(payload)
					}
					return
				}
			}
		}))
	})
}

// Close leaves the instances in Redis: the caller empties it.
func (o *ours) Close() (err error) {
	if o.consumer != nil {
		err = o.stop()
	}
	return errors.Join(err, leave(o.provider))
}

// registerAll registers many instances of a service, which then do not beat by themselves for long.
func registerAll(ctx context.Context, p *registry.Provider, service string, count int, change func(*registry.Registration)) error {
	return measure.InParallel(count, count, func(i int) error {
		r := registration(service, fmt.Sprintf("instance-%06d", i), "")
		change(&r)
		return p.Register(ctx, r)
	})
}

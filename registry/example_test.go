package registry_test

import (
	"context"
	"fmt"
	"time"

	"github.com/freeslot/freeslot/registry"
)

// Register an instance, and find it from another process.
func Example() {
	url, stop := exampleRedis()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	provider, err := registry.NewProvider(registry.Options{RedisURL: url, StopPause: -1})
	must(err)
	must(provider.Start(ctx))
	must(provider.Register(ctx, registry.Registration{
		Service: "orders", ID: "orders-1", Port: 8080, Metadata: map[string]string{"zone": "eu-1"},
	}))

	consumer, err := registry.NewConsumer(registry.ConsumerOptions{RedisURL: url})
	must(err)
	must(consumer.Start(ctx))
	list, err := consumer.HealthyInstances(ctx, "orders")
	must(err)
	fmt.Println(list.State, list.Instances[0].ID, list.Instances[0].Metadata["zone"])

	gone := make(chan *registry.List)
	must(consumer.Subscribe("orders", func(l *registry.List) {
		if l.State == registry.StateEmpty {
			gone <- l
		}
	}))
	must(provider.Stop(ctx))
	fmt.Println((<-gone).Why)
	must(consumer.Stop(ctx))
	// Output:
	// live orders-1 eu-1
	// deregistered
}

// database reports the state of the program's own database.
type database struct{}

func (database) Type() string                   { return "database" }
func (database) Available(context.Context) bool { return true }
func (database) Cost() registry.Cost            { return registry.CostHigh }
func (database) Collect(context.Context) (registry.Metrics, error) {
	return registry.Metrics{"connections": 7}, nil
}

// An own collector, and which of its changes are sent at once.
func Example_collectors() {
	_, err := registry.NewProvider(registry.Options{
		RedisURL:   "redis://127.0.0.1:6379",
		Collectors: append(registry.SystemCollectors(), registry.Collection{Collector: database{}}),
		Heartbeat: registry.HeartbeatPolicy{Thresholds: map[string]registry.Threshold{
			"memory.usage":         {Kind: registry.Absolute, Value: 0.1},
			"database.connections": {Kind: registry.Percent, Value: 50},
		}},
	})
	fmt.Println(err)
	// Output: <nil>
}

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/freeslot/freeslot"
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
	listener, err := consumer.Subscribe("orders", func(l *registry.List) {
		if l.State == registry.StateEmpty {
			gone <- l
		}
	})
	must(err)
	must(provider.Stop(ctx))
	fmt.Println((<-gone).Why)
	must(consumer.Unsubscribe("orders", listener))
	must(consumer.Stop(ctx))
	// Output:
	// live orders-1 eu-1
	// deregistered
}

// Use the instances alone that have a label and room: by a list, by a picker, and by a question to Redis.
func Example_filter() {
	url, stop := exampleRedis()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()

	n, err := registry.NewNaming(registry.NamingOptions{Options: registry.Options{RedisURL: url, StopPause: -1}})
	must(err)
	must(n.Start(ctx))
	for id, gpu := range map[string]string{"asr-1": "a100", "asr-2": "none", "asr-3": "a100"} {
		must(n.Register(ctx, registry.Registration{Service: "asr", ID: id, Port: 8080, Metadata: map[string]string{"gpu": gpu}}))
	}
	// Instances without the figure are not taken by a term such as "cpu.usage < 0.8", but by !=.
	filter, err := registry.NewFilter([]freeslot.LabelRule{{Label: "gpu", Operator: freeslot.LabelIn, Values: []string{"a100"}}}, []string{"cpu.usage != 1"})
	must(err)

	for list := new(registry.List); len(list.Instances) < 2; { // until the consumer has heard of all
		all, err := n.HealthyInstances(ctx, "asr")
		must(err)
		list = all.Match(filter)
	}
	picker, err := registry.NewPicker(ctx, n.Consumer, "asr", registry.PickConfig{Filter: filter})
	must(err)
	picked, err := picker.Pick(ctx, "")
	must(err)
	fmt.Println(picked.Instance.Metadata["gpu"])
	picked.Done(nil)

	var ids []string
	for cursor := "0"; ; {
		page, next, err := n.Query(ctx, "asr", filter, cursor)
		must(err)
		for _, in := range page {
			ids = append(ids, in.ID)
		}
		if cursor = next; cursor == "0" {
			break
		}
	}
	slices.Sort(ids)
	fmt.Println(ids)
	must(n.Stop(ctx))
	// Output:
	// a100
	// [asr-1 asr-3]
}

// Report how long the calls of other services take, as figures of the own instances.
func Example_calls() {
	calls := registry.NewCalls()
	opts := registry.Options{RedisURL: "redis://127.0.0.1:6379", Collectors: []registry.Collection{{Collector: calls}}}
	_, err := registry.NewProvider(opts)
	must(err)

	// registry.PickConfig{Calls: calls}, transport.Config{Calls: calls} and resolver.Measure(calls) measure by themselves.
	calls.Add("users", 20*time.Millisecond, nil)
	calls.Add("users", 40*time.Millisecond, nil)
	calls.Add("users", time.Second, errors.New("no answer"))
	figures, err := calls.Collect(context.Background())
	fmt.Println(figures["users_ms"], figures["users_answered"], figures["users_failed"], err)
	// Output: 30 2 1 <nil>
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

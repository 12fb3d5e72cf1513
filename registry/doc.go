// Package registry finds services: programs register their instances in Redis, and others follow a
// service and have its instances at hand. It runs in these programs and needs no server of its own.
//
//	n, err := registry.NewNaming(registry.NamingOptions{Options: registry.Options{RedisURL: "redis://127.0.0.1:6379"}})
//	err = n.Start(ctx)
//	defer n.Stop(context.Background())
//
//	err = n.Register(ctx, registry.Registration{Service: "orders", Port: 8080})
//	list, err := n.HealthyInstances(ctx, "users")
//
// [NewProvider] and [NewConsumer] make the two halves of a [Naming].
//
// # What is promised
//
// A registered instance stays registered while its process lives: when Redis loses it, restarts, or
// was away, the provider registers it again, and never gives that up.
//
// A [List] is as Redis has it, or says that it is not: State and Why are beside every list. Redis'
// silence and a loss of its data leave the list as it was. So an empty list is one that Redis has
// said is empty.
//
// An instance without a heartbeat for the consumer's own timeout is late, by Redis' clock. Late
// ones are used only where no other one is left.
package registry

// Package registry finds services: programs register their instances in Redis, and others follow a
// service and always have its list of instances. It runs in these programs and needs no server of
// its own.
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
// A registered instance stays registered while its process lives: if Redis loses it, restarts, or
// was away, the provider registers it again, and never gives up.
//
// A [List] shows what Redis has, or says that it does not: State and Why are part of every list.
// When Redis is silent or loses its data, lists stay as they were. So an empty list means that
// Redis itself said that the service is empty.
//
// An instance is late if it sends no heartbeat within the consumer's own timeout, by Redis' clock.
// Late instances are used only if no other is left.
package registry

// Package registry is a service registry on Redis: providers register instances and send
// heartbeats, consumers follow services and get lists, with the reason for each. It has no server
// of its own and no leader. docs/design/registry.md describes keys, scripts, events and states.
//
//   - A [Provider] keeps instances registered: one service loop for each service, one member for
//     each instance. A member decides what is sent next, without I/O.
//   - A [Consumer] has one follower, which owns the views of all services, their looks and fetches.
//     A view is a state machine without I/O: what it believes is decided there and nowhere else. A
//     hub has the subscriptions, on one connection to each server.
//   - A [Naming] is both, on the same connections. A connection may be made after the start.
//   - A [Store] reads and changes all services, for replicas: package centre cleans up and checks,
//     package server has the HTTP routes, package v1 copies from and to the first version.
//   - Documents are named texts with versions, which consumers can watch.
//
// # What happens on failure
//
// Nothing gives up. If Redis does not have a provider's instance, the provider registers it again,
// with growing pauses. A consumer keeps its lists, says in State that they are old, and compares
// again when Redis is back. A call that failed may have been carried out; all scripts can be
// repeated.
package registry

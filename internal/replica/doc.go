// Package replica assembles one scheduler replica from its parts: connections to Redis, cells, node
// cache, configuration of pools, dispatcher, schedules, and the HTTP and WebSocket side.
// cmd/scheduler runs one. Package embed runs one without the HTTP and WebSocket side.
//
// Each part is a step with a name, a start and a stop. Replica.steps lists them in the order in
// which they start, from the bottom up. Stop goes the other way round.
package replica

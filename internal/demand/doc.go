// Package demand tells how many slots jobs need, by pool and service: GET /v1/demand.
//
// A [Watch] in each replica puts it together every few seconds from what the replica knows anyway:
//
//   - Waiting jobs come from the regular count of the queues (package dispatch), nodes and their
//     slots from the cache.
//   - Arrivals and run times come from all replicas. A [Meter] counts the jobs of its replica, and
//     the replica tells its busiest kinds with its status (package presence). Reading all statuses
//     is the only call to Redis, whatever the number of queues.
//
// So all replicas report nearly the same, and their figures must not be added up.
package demand

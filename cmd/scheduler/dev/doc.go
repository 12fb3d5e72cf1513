// Package dev runs a whole freeslot system in one process, to try it out and for smoke tests: a
// redis-server of its own (or, if none is installed, the stand-in devredis, which keeps nothing),
// one replica, three nodes with different capabilities, a small list, and a first batch of jobs
// whose results it prints. The third node is connected by the replica's gateway. After the batch a
// gentle load of the tenant demo gives a console something to show: jobs, with retries, dead ones
// and ones that a concurrency key holds back, a schedule, a lock, lookups in the list, and a
// registered service.
//
// Parts are started in the order of their dependencies and stopped in the reverse order. A failure
// during the start stops the parts that run already.
package dev

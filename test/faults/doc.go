// Package faults breaks a fleet of real processes in every way that it can, while a load of jobs runs on it, and then
// proves from the recorded history that nothing was lost and nothing was answered twice.
//
// A run is a redis-server, two replicas and four agents, each of these behind a proxy of its own to Redis, three
// clients, and one HTTP service inside the test, which counts the handlers that run. The faults are a plan that a
// seed gives: processes are killed, frozen and stopped in good order, connections cut, slowed, and silenced. At the end
// everything is brought back and has to come to rest by itself.
//
// Other runs have a Redis that fails over, by sentinels or in a cluster, or in a container. What Redis may have lost then is
// told to the checker, see [Loss].
//
// Everything that happens is an Event. Check is a pure function of the history and of what Redis holds at the end, so
// that its own tests can hand it histories in which something went wrong.
//
// A soak is a steady load that breaks nothing: [Judge] says whether memory or goroutines grew.
//
// The same seed gives the same load and the same plan of faults. How the processes interleave is their own affair, so a
// seed that failed may need more than one run to fail again.
package faults

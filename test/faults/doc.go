// Package faults breaks a fleet of real processes in every way that it can, while a load of jobs
// runs on it. Then it proves from the recorded history that nothing was lost and nothing was
// answered twice.
//
// A run is a redis-server, two replicas and four agents, three clients, and one HTTP service inside
// the test, which counts the running handlers. The replicas are the gateways of two agents. Every
// connection to Redis or to a gateway goes through a proxy of its own. A seed gives the plan of
// faults: processes are killed, frozen and stopped in good order, connections are cut, slowed and
// silenced. At the end everything is repaired and has to come to rest by itself.
//
// Other runs have a Redis that fails over, by sentinels or in a cluster, or in a container. The
// checker gets what Redis may have lost then, see [Loss].
//
// Raw agents try what a gateway must not let them do, see TestGateway.
//
// Three other programs are broken in runs of their own. Processes that hold locks (lockholder) are
// judged by [CheckLocks], and processes that use the registry (registrypeer) by [CheckRegistry].
// Replicas that build name lists, and processes that ask them (listspeer), are broken together: a
// map judges each [ListAnswer].
//
// Everything that happens is an Event. Check is a pure function of the history and of what Redis
// holds at the end, so that its own tests can give it histories in which something went wrong.
//
// A model of its own checks the slots of a node, which many callers change at the same time, see
// [CheckReservations].
//
// A soak is a steady load without faults: [Judge] finds out whether memory or goroutines grew.
//
// The same seed gives the same load and the same plan of faults. It does not decide how processes
// interleave, so a seed that failed can need more than one run to fail again.
//
// Files that begin with rig_ set up and break a fleet, and hold no tests.
package faults

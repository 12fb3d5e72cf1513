// Package collector collects the figures of a machine that its node tells the
// schedulers: memory, processors, disks and so on.
//
// A [Collector] gives the figures of one type. A [Runner] runs any number of them, each
// with its own interval and time limit, and publishes what they found last as a
// [Snapshot]. Whoever sends the figures reads [Runner.Latest], which never waits: a
// collector that fails, is slow, never returns or panics delays nobody. Its last
// figures are published for three intervals, and then left out; an absent figure is
// honest, an old one is not. Failures are logged once a spell and counted.
//
// The figures of built-in collectors are those of the cgroup in which the process runs
// where it has a limit of its own, and those of the host otherwise: in a container with
// 2 GiB, a memory usage of 0.9 means 1.8 GiB. docs/nodeagent.md lists all of them with
// their units.
package collector

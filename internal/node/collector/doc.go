// Package collector collects the figures of a machine that heartbeats bring: memory, processors,
// disks and so on.
//
// A [Collector] collects the figures of one type. A [Runner] runs any number of them, each with its
// own interval and time limit, and publishes their last figures as a [Snapshot]. [Runner.Latest]
// never waits: a collector that fails, is slow, never returns or panics delays nothing else. Its
// last figures are published for three intervals, and then left out, because an old figure
// misleads. Failures are counted, and logged when they begin.
//
// If the cgroup of the process has a limit of its own, built-in collectors report the figures of
// the cgroup, otherwise the host's. In a container with 2 GiB, a memory usage of 0.9 means
// 1.8 GiB. docs/nodeagent.md lists all figures with their units.
package collector

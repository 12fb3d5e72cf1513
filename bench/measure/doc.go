// Package measure is what the load tools of bench share: what they ran on, latencies, child
// processes, Redis' own counters, exact waits, and the words of their reports.
package measure

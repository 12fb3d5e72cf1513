// Package figure compares the figures of a machine, which have names such as cpu.usage, with values
// that a caller states: cpu.usage < 0.8. Listings of nodes and of instances filter by such
// comparisons.
//
// All functions are pure and safe for concurrent use.
package figure

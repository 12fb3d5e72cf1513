package main

import "runtime/debug"

// startGCPercent is GOGC during a start.
const startGCPercent = 400

// relaxGC has the heap collected more seldom until restore is called. Most of what a
// start allocates stays: to go through it again and again while it grows takes a sixth of
// the processor time of a start with 10,000 nodes. GOGC is respected where it asks for
// that much or more, and a memory limit always.
func relaxGC() (restore func()) {
	before := debug.SetGCPercent(startGCPercent)
	restore = func() { debug.SetGCPercent(before) }
	if before < 0 || before > startGCPercent {
		restore()
	}
	return restore
}

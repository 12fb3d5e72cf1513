package main

import "runtime/debug"

// startGCPercent is the value of GOGC during a start.
const startGCPercent = 400

// relaxGC makes garbage collections less frequent until restore is called. A start keeps most of
// its allocations, so collecting them while they grow takes a sixth of the processor time of a
// start with 10,000 nodes. A higher GOGC stays, and so does a memory limit.
func relaxGC() (restore func()) {
	before := debug.SetGCPercent(startGCPercent)
	restore = func() { debug.SetGCPercent(before) }
	if before < 0 || before > startGCPercent {
		restore()
	}
	return restore
}

package main

import (
	"runtime/debug"
	"testing"
)

// TestRelaxGC is not parallel: the setting is global to the process.
func TestRelaxGC(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	for set, during := range map[int]int{100: startGCPercent, 20: startGCPercent, startGCPercent: startGCPercent, 1000: 1000, -1: -1} {
		debug.SetGCPercent(set)
		restore := relaxGC()
		if got := current(); got != during {
			t.Errorf("GOGC %d: %d during a start, expected %d", set, got, during)
		}
		restore()
		restore() // by both a start that ends and serve
		if got := current(); got != set {
			t.Errorf("GOGC %d: %d after a start", set, got)
		}
	}
}

func current() int {
	percent := debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	return percent
}

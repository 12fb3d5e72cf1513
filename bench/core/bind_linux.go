package main

import (
	"math/bits"
	"runtime"

	"golang.org/x/sys/unix"
)

// bound runs f on a thread that stays on one processor, the last of those that the process may use:
// the first takes most interrupts. It reports false, and has not run f, where that is not allowed.
// All other threads stay as they are: Go begins none from one that is locked.
func bound(f func()) bool {
	runtime.LockOSThread()
	var all, one unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		runtime.UnlockOSThread()
		return false
	}
	for cpu := range len(all) * bits.UintSize {
		if all.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
		}
	}
	if unix.SchedSetaffinity(0, &one) != nil {
		runtime.UnlockOSThread()
		return false
	}
	defer func() {
		if unix.SchedSetaffinity(0, &all) == nil { // else the thread ends with its goroutine
			runtime.UnlockOSThread()
		}
	}()
	f()
	return true
}

package main

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// bound runs f on a thread that stays on one processor, the first of those that the process may use.
// Other goroutines stay where they are: a locked thread starts none.
func bound(f func()) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return fmt.Errorf("processors of a thread: %w", err)
	}
	for cpu := 0; one.Count() == 0; cpu++ {
		if all.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("bind a thread: %w", err)
	}
	f()
	if err := unix.SchedSetaffinity(0, &all); err != nil {
		return fmt.Errorf("unbind a thread: %w", err)
	}
	return nil
}

const canBind = true

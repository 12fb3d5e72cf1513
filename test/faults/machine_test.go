package faults

import (
	"sync/atomic"
	"time"
)

// machine measures how long this process had to wait for a processor, in all and at most once. The
// programs under test had to wait about as long.
var machine struct{ late, longest atomic.Int64 }

// probeEvery is how often it wants to run, and probeLate what an idle machine may take longer.
const probeEvery, probeLate = 10 * time.Millisecond, 2 * time.Millisecond

// watchMachine runs until the process ends.
func watchMachine() {
	for {
		begin := Clock()
		time.Sleep(probeEvery)
		if late := Clock() - begin - probeEvery; late > probeLate {
			machine.late.Add(int64(late))
			machine.longest.Store(max(machine.longest.Load(), int64(late)))
		}
	}
}

// margin begins to measure a time that a test judges. The function that it returns says what the
// machine has added to it since: machineMargin, and what this process had to wait.
func margin() func() time.Duration {
	before := machine.late.Load()
	return func() time.Duration { return machineMargin + time.Duration(machine.late.Load()-before) }
}

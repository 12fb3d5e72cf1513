package main

import "testing"

// TestReadTrace: tasks count that run from a message on and before the next one, on the thread that
// gets the messages.
func TestReadTrace(t *testing.T) {
	t.Parallel()
	got := readTrace([]traceEvent{
		{Name: runTask, PID: 1, TID: 2, At: 9000, Duration: 4000}, // it gets the first message
		{Name: messageCame, PID: 1, TID: 2, At: 10_000},
		{Name: runTask, PID: 1, TID: 3, At: 11_000, Duration: 90_000}, // of another thread
		{Name: messageCame, PID: 1, TID: 2, At: 20_000},
		{Name: runTask, PID: 1, TID: 2, At: 19_500, Duration: 1000}, // it gets the second message
		{Name: runTask, PID: 1, TID: 2, At: 14_000, Duration: 2000},
		{Name: runTask, PID: 1, TID: 2, At: 1000, Duration: 1000}, // before all
		{Name: runTask, PID: 1, TID: 2, At: 21_000, Duration: 7000},
	})
	if len(got.arrivals) != 2 || got.between(got.arrivals[0], got.arrivals[1]) != 6 {
		t.Errorf("messages %v, %v ms of work for the first; want 2 and 6 ms", got.arrivals, got.between(10, 20))
	}
	if got.longest() != 7 {
		t.Errorf("the longest task took %v ms; want 7", got.longest())
	}
}

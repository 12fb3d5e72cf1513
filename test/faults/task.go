package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"

	"github.com/freeslot/freeslot"
)

// serviceName is what all jobs ask for.
const serviceName = "count"

// maxAttempts is enough that no job dies of the nodes that it loses.
const maxAttempts = 50

// forEver is how long the handlers take that must be stopped.
const forEver = 60_000

// newTask draws the n-th job of a load.
func newTask(rng *rand.Rand, n int) Task {
	t := Task{N: n, Slots: 1, TakeMS: takes(rng), Priority: 0}
	if chance(rng, 5) {
		t.Slots = 2
	}
	if chance(rng, 10) {
		t.Priority = rng.IntN(freeslot.MaxPriority + 1)
	}
	switch kind := rng.IntN(100); {
	case kind < 2:
		t.Fatal = true
	case kind < 5:
		t.Refusals = 1
	case kind < 9:
		t.CancelMS = 1 + rng.IntN(150)
	case kind < 13:
		t.TimeoutMS = 100 + rng.Int64N(3000)
	case kind < 14:
		// The timeout is for a job whose client does not know that it was accepted, and so cannot
		// cancel it.
		t.TakeMS, t.CancelMS, t.TimeoutMS = forEver, 1+rng.IntN(1500), 10_000
	case kind < 15:
		t.TakeMS, t.TimeoutMS = forEver, 300+rng.Int64N(2500)
	}
	return t
}

func takes(rng *rand.Rand) int {
	switch kind := rng.IntN(100); {
	case kind < 85:
		return 5 + rng.IntN(60)
	case kind < 96:
		return 60 + rng.IntN(140)
	default:
		return 1000 + rng.IntN(1000)
	}
}

func chance(rng *rand.Rand, percent int) bool { return rng.IntN(100) < percent }

// job is the task as it is submitted.
func (t *Task) job() freeslot.Job {
	payload, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("a task is not JSON: %v", err)) // it has numbers only
	}
	return freeslot.Job{
		Service: serviceName, Payload: payload, Slots: t.Slots, Priority: t.Priority, TimeoutMS: t.TimeoutMS, MaxAttempts: maxAttempts,
	}
}

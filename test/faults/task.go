package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/freeslot/freeslot"
)

// serviceName is the service that all jobs ask for, and classLabel holds the class of a node.
const (
	serviceName = "count"
	classLabel  = "class"
)

// maxAttempts is so large that no job dies because it loses its nodes.
const maxAttempts = 50

// forEver is the time of handlers that must be stopped.
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

const (
	// serialKeys is the number of concurrency keys, serialLimit how many jobs of each may run.
	serialKeys  = 3
	serialLimit = 2
	// stallMS is how long a job that may stall runs without progress.
	stallMS = 400
)

// classes lists the classes of nodes.
var classes = []string{"a", "b"}

// vary gives a job traits of the kinds that most loads do without. keys allows idempotency keys.
func (t *Task) vary(rng *rand.Rand, keys bool) {
	if chance(rng, 30) {
		t.Class = classes[rng.IntN(len(classes))]
	}
	if chance(rng, 10) {
		t.Serial = fmt.Sprintf("s%d", rng.IntN(serialKeys))
	}
	if chance(rng, 10) {
		t.DelayMS = 20 + rng.Int64N(1500)
	}
	t.Keyed = keys && chance(rng, 10)
	if t.Fatal || t.Refusals > 0 || t.TakeMS == forEver {
		return
	}
	switch kind := rng.IntN(100); {
	case kind < 10:
		t.Tells = true
	case kind < 12 && t.TimeoutMS == 0: // without the time for a retry it would expire early
		t.Stalls, t.TakeMS = true, min(t.TakeMS, 60)
	}
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

// job returns the job that is submitted for the task.
func (t *Task) job() freeslot.Job {
	payload, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("a task is not JSON: %v", err)) // it has numbers only
	}
	job := freeslot.Job{
		Service: serviceName, Payload: payload, Slots: t.Slots, Priority: t.Priority, TimeoutMS: t.TimeoutMS, MaxAttempts: maxAttempts,
	}
	if t.Class != "" {
		job.Requirement.Labels = map[string]string{classLabel: t.Class}
	}
	if t.Keyed {
		job.IdempotencyKey = fmt.Sprintf("job-%d", t.N)
	}
	if t.Serial != "" {
		job.ConcurrencyKey, job.ConcurrencyLimit = t.Serial, serialLimit
	}
	if t.DelayMS > 0 {
		job.RunAtMS = time.Now().UnixMilli() + t.DelayMS
	}
	if t.Stalls {
		job.ProgressTimeoutMS = stallMS
	}
	return job
}

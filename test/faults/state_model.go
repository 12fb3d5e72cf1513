package faults

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/freeslot/freeslot"
)

// seen is the furthest that a job is known to be.
type seen struct {
	attempt int
	state   freeslot.State
	result  Result
}

// order tells how far a state is within its attempt, which begins with running. The terminal states
// are equally far: none can be reached from another.
var order = map[freeslot.State]int{
	freeslot.StateRunning: 0, freeslot.StateCancelling: 1, freeslot.StateRetryWait: 2, freeslot.StateWaiting: 3, freeslot.StateMoving: 3,
}

// reachable reports whether a job that was in state s can be in state next later.
func (s seen) reachable(next seen) bool {
	switch {
	case s.state.Terminal():
		return s == next
	case next.attempt != s.attempt:
		// A job that is being cancelled gets no further attempt.
		return next.attempt > s.attempt && s.state != freeslot.StateCancelling
	case next.state.Terminal():
		return true
	default:
		return order[next.state] >= order[s.state]
	}
}

// stateModel is a job as a register that moves by itself, only ever forward: each look finds it
// where it was found before or further on.
var stateModel = porcupine.Model{
	Init: func() any { return seen{state: freeslot.StateRunning} },
	Step: func(state, _, output any) (bool, any) {
		return state.(seen).reachable(output.(seen)), output
	},
	DescribeOperation: func(_, output any) string { return fmt.Sprint(output) },
}

// checkStates looks for an order of all observed states of a job that the life of a job allows, and
// in which no later observation comes before an earlier one.
func (c *checker) checkStates() {
	for _, n := range slices.Sorted(maps.Keys(c.jobs)) {
		j := c.jobs[n]
		if j.doubt {
			continue
		}
		var ops []porcupine.Operation
		for _, e := range slices.Concat(j.looks, j.again, j.ends) {
			s := seen{attempt: e.Attempt, state: e.State}
			if e.Result != nil {
				s.result = *e.Result
			}
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Call: int64(e.From), Output: s, Return: int64(e.At)})
		}
		if len(ops) > 1 && !porcupine.CheckOperations(stateModel, ops) {
			text := ""
			for _, op := range ops {
				s := op.Output.(seen)
				text += fmt.Sprintf(" [%d..%d ms: %s, attempt %d]", op.Call/1e6, op.Return/1e6, s.state, s.attempt)
			}
			c.bad("states", "submission %d was found to be%s", n, text)
		}
	}
}

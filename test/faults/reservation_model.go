package faults

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

// mostReserved is the largest number of jobs in a node's history.
const mostReserved = 128

// Reserve tells what is done to a node's slots.
type Reserve string

// The operations of a node. Each concerns one job, except the last three.
const (
	Take    Reserve = "take"
	Release Reserve = "release"
	StopJob Reserve = "stop"
	Close   Reserve = "close" // drain
	Reopen  Reserve = "reopen"
	Count   Reserve = "count"
)

// ReserveOp is an operation on a node as its caller saw it. Times count from the beginning of the
// run.
type ReserveOp struct {
	Node         string
	Kind         Reserve
	Job, Slots   int
	Call, Return time.Duration
	// Again is true if an earlier try may have been applied already, because its answer was lost.
	Again bool
	// Lost is true if no answer has come, so Got and Used mean nothing.
	Lost bool
	// Got is the answer in a word. Used is the number of slots in use, for Take and Count.
	Got  string
	Used int
}

// The answers, most of them in the cell's words.
const (
	taken          = "taken"
	repeated       = "repeated"
	full           = string(cell.RefusedFull)
	closed         = string(cell.RefusedDraining)
	released       = string(cell.Completed)
	releasedBefore = string(cell.CompletedBefore)
	notOwned       = string(cell.CompletedStale)
	stopping       = string(freeslot.StateCancelling)
	over           = string(freeslot.StateSucceeded)
	unknownJob     = string(freeslot.CodeNotFound)
	done           = "done"
)

// phase tells how far a job is on its node.
type phase uint8

const (
	absent phase = iota
	holds
	stops // it holds its slots until it is released
	ended
)

// slotState is the state of a node. It is comparable, because the search needs that.
type slotState struct {
	closed bool
	used   int
	jobs   [mostReserved]phase
}

// reservationModel returns a node with this many slots.
func reservationModel(slots int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return slotState{} },
		Step: func(state, input, _ any) (bool, any) {
			s, op := state.(slotState), input.(ReserveOp)
			got, used, next := s.apply(&op, slots)
			if op.Lost {
				return true, next
			}
			if op.Again && got == taken && op.Got == repeated {
				return true, next // an earlier try of this operation took it
			}
			if op.Again && got == released && op.Got == releasedBefore {
				return true, next
			}
			return op.Got == got && (op.Kind != Take && op.Kind != Count || op.Got == repeated || op.Used == used), next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	}
}

// apply returns the answer of an operation, the number of slots in use then, and the state after
// it.
func (s slotState) apply(op *ReserveOp, slots int) (got string, used int, next slotState) {
	job := s.jobs[op.Job]
	switch op.Kind {
	case Take:
		switch {
		case job != absent:
			return repeated, s.used, s
		case s.closed:
			return closed, s.used, s
		case s.used+op.Slots > slots:
			return full, s.used, s
		}
		s.used += op.Slots
		s.jobs[op.Job] = holds
		return taken, s.used, s
	case Release:
		switch job {
		case absent:
			return notOwned, s.used, s
		case ended:
			return releasedBefore, s.used, s
		}
		s.used -= op.Slots
		s.jobs[op.Job] = ended
		return released, s.used, s
	case StopJob:
		switch job {
		case absent:
			return unknownJob, s.used, s
		case ended:
			return over, s.used, s
		}
		s.jobs[op.Job] = stops
		return stopping, s.used, s
	case Close, Reopen:
		s.closed = op.Kind == Close
	}
	return done, s.used, s
}

// reservationLimit bounds the search for an order of one node's operations.
const reservationLimit = 20 * time.Second

// CheckReservations lists the nodes for whose operations no order agrees with all answers: one
// after the other, none beyond the slots, none while the node is drained, each job released once.
func CheckReservations(slots map[string]int, ops []ReserveOp) (found []Violation) {
	nodes := map[string][]porcupine.Operation{}
	for i, op := range ops {
		end := int64(op.Return)
		if op.Lost {
			end = math.MaxInt64
		}
		nodes[op.Node] = append(nodes[op.Node], porcupine.Operation{ClientId: i, Input: op, Call: int64(op.Call), Return: end})
	}
	for node, history := range nodes {
		if result := porcupine.CheckOperationsTimeout(reservationModel(slots[node]), history, reservationLimit); result != porcupine.Ok {
			found = append(found, Violation{Rule: "reservations", Text: fmt.Sprintf("%d operations of %s are in no order that it allows (%s)", len(history), node, result)})
		}
	}
	return found
}

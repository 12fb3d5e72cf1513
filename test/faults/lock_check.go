package faults

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// LockLease is the lease of locks under test, and the longest time for which two holders can have
// live contexts after Redis lost a lock.
const LockLease = 500 * time.Millisecond

// LockKind tells what a LockOp is.
type LockKind string

// The kinds of a LockOp. Acquire is the call that got the lock. Write and Read use the register
// that the lock guards.
const (
	Acquire LockKind = "acquire"
	Write   LockKind = "write"
	Read    LockKind = "read"
)

// LockOp is one thing that a holder of a lock did. Times are nanoseconds of one clock, which all
// processes of the machine share.
type LockOp struct {
	Kind LockKind `json:"kind"`
	Key  string   `json:"key"`
	// Hold names the acquisition, and N numbers its operations.
	Hold  string `json:"hold"`
	N     int    `json:"n"`
	Token int64  `json:"token"`
	Call  int64  `json:"call"`
	// Return is 0 if the holder has not learned the outcome: it may have been killed.
	Return int64 `json:"return,omitempty"`
	// Live is the last moment at which the hold's context is known to have been live.
	Live int64 `json:"live,omitempty"`
	// Accepted is true if the register took the write.
	Accepted bool `json:"accepted,omitempty"`
	// Value was written or read.
	Value string `json:"value,omitempty"`
}

// hold is one acquisition. It was live from its Return to its Live, and maybe for longer.
type hold struct{ LockOp }

func (h hold) String() string {
	return fmt.Sprintf("%s (token %d, live from %d to %d us)", h.Hold, h.Token, h.Return/1000, h.Live/1000)
}

// CheckLocks lists everything that is wrong with what holders did. overlap is how long two holders
// of one lock may have live contexts; 0 for faults in which Redis keeps its data.
func CheckLocks(ops []LockOp, overlap time.Duration) []Violation {
	holds, register := map[string][]hold{}, map[string][]LockOp{}
	for key, known := range byKey(ops) {
		for _, op := range known {
			if op.Kind == Acquire {
				holds[key] = append(holds[key], hold{op})
			} else {
				register[key] = append(register[key], op)
			}
		}
	}
	var c checker
	for _, key := range slices.Sorted(maps.Keys(holds)) {
		c.checkHolders(key, holds[key], overlap)
		c.checkTokens(key, holds[key])
		c.checkRegister(key, register[key])
	}
	return c.violations
}

// byKey returns the operations of each lock. An operation that was reported at its beginning and at
// its end counts as one, and each acquisition knows how long it was live.
func byKey(ops []LockOp) map[string][]LockOp {
	type id struct {
		hold string
		n    int
	}
	index, out := map[id]*LockOp{}, map[string][]LockOp{}
	var order []*LockOp
	for _, op := range ops {
		if known := index[id{op.Hold, op.N}]; known != nil {
			*known = op
		} else {
			index[id{op.Hold, op.N}] = &op
			order = append(order, &op)
		}
		if acquired := index[id{op.Hold, 0}]; acquired != nil {
			acquired.Live = max(acquired.Live, op.Live)
		}
	}
	for _, op := range order {
		out[op.Key] = append(out[op.Key], *op)
	}
	return out
}

// checkHolders: no two holders have live contexts at one moment. If Redis keeps its data, tokens
// follow the order of the holders.
func (c *checker) checkHolders(key string, holds []hold, overlap time.Duration) {
	holds = slices.DeleteFunc(slices.Clone(holds), func(h hold) bool { return h.Live == 0 })
	slices.SortFunc(holds, func(x, y hold) int { return cmp.Compare(x.Return, y.Return) })
	for i := 1; i < len(holds); i++ {
		last, next := holds[i-1], holds[i]
		if both := time.Duration(min(last.Live, next.Live) - next.Return); both > overlap {
			c.bad("two holders", "of %s for %s: %s and %s", key, both, last, next)
		}
		if overlap == 0 && next.Token <= last.Token {
			c.bad("tokens", "of %s do not grow: %s and then %s", key, last, next)
		}
		if last.Live > next.Live { // compare with the one that lives longest
			holds[i] = last
		}
	}
}

// checkTokens: a holder that asked for the lock after another one had got it has the higher token.
func (c *checker) checkTokens(key string, holds []hold) {
	returned, called := slices.Clone(holds), slices.Clone(holds)
	slices.SortFunc(returned, func(x, y hold) int { return cmp.Compare(x.Return, y.Return) })
	slices.SortFunc(called, func(x, y hold) int { return cmp.Compare(x.Call, y.Call) })
	var highest hold
	for _, h := range called {
		for ; len(returned) > 0 && returned[0].Return < h.Call; returned = returned[1:] {
			if returned[0].Token > highest.Token {
				highest = returned[0]
			}
		}
		if h.Token <= highest.Token {
			c.bad("tokens", "of %s do not grow: %s had it, and then %s asked for it", key, highest, h)
		}
	}
}

// written holds the content of a register, and the token that it came with.
type written struct {
	token int64
	value string
}

// registerModel is a register that takes a write unless it has a higher token. A write whose
// outcome is not known may have had no effect; then it comes after all others.
var registerModel = porcupine.Model{
	Init: func() any { return written{} },
	Step: func(state, input, _ any) (bool, any) {
		s, op := state.(written), input.(LockOp)
		passes := op.Token >= s.token
		switch {
		case op.Kind == Read:
			return op.Value == s.value, s
		case op.Return != 0 && op.Accepted != passes:
			return false, s
		case passes:
			return true, written{op.Token, op.Value}
		default:
			return true, s
		}
	},
}

// registerLimit bounds the search for an order of one register's operations.
const registerLimit = 20 * time.Second

// checkRegister: there is an order of all operations in which no accepted write has a lower token
// than an earlier one, and each read finds the last accepted write.
func (c *checker) checkRegister(key string, ops []LockOp) {
	history := make([]porcupine.Operation, len(ops))
	for i, op := range ops {
		end := op.Return
		if end == 0 {
			end = math.MaxInt64
		}
		history[i] = porcupine.Operation{ClientId: i, Input: op, Call: op.Call, Return: end}
	}
	if found := porcupine.CheckOperationsTimeout(registerModel, history, registerLimit); found != porcupine.Ok {
		c.bad("register", "%d operations of %s are in no order that it allows (%s)", len(ops), key, found)
	}
}

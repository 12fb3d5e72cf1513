package main

// kind is what happens at a moment.
type kind uint8

const (
	arrive    kind = iota // a job comes; who: replica
	run                   // a call's script runs; call
	answer                // a call's answer reaches the replica; call
	complete              // a job ends at its node, and the script runs; who: replica, node
	heartbeat             // the script of a node's heartbeat runs; node
)

// entry is one thing to come.
type entry struct {
	at   int64
	turn uint64 // entries of one moment keep the order of their making
	kind kind
	who  int32
	node int32
	call *call
}

// agenda is a binary heap of what is to come. Entries of one moment come in the order in which they
// were added, so that a run can be repeated. container/heap would box each entry, of which there
// are millions.
type agenda struct {
	heap []entry
	turn uint64
}

func (a *agenda) before(i, j int) bool {
	x, y := &a.heap[i], &a.heap[j]
	return x.at < y.at || x.at == y.at && x.turn < y.turn
}

func (a *agenda) add(e entry) {
	e.turn = a.turn
	a.turn++
	a.heap = append(a.heap, e)
	for i := len(a.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !a.before(i, up) {
			return
		}
		a.heap[i], a.heap[up] = a.heap[up], a.heap[i]
		i = up
	}
}

// next takes out the earliest entry; ok is false when there is none.
func (a *agenda) next() (e entry, ok bool) {
	if len(a.heap) == 0 {
		return e, false
	}
	e = a.heap[0]
	last := len(a.heap) - 1
	a.heap[0], a.heap[last] = a.heap[last], entry{}
	a.heap = a.heap[:last]
	for i := 0; ; {
		least := i
		for down := 2*i + 1; down <= 2*i+2 && down < last; down++ {
			if a.before(down, least) {
				least = down
			}
		}
		if least == i {
			return e, true
		}
		a.heap[i], a.heap[least] = a.heap[least], a.heap[i]
		i = least
	}
}

package cell

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// TestRaceOfMoves: many begin moves, bring jobs on, cancel and run them at once, there and back. Every job ends
// once, and runs at most once.
func TestRaceOfMoves(t *testing.T) {
	t.Parallel()
	m := newMovers(t, redistest.Shared(t), 3)
	const jobs, writers, rounds = 48, 6, 30
	epochs, nodes := make([]Epoch, 3), []string{"n0", "n1", "n2"}
	for i, r := range m.rigs {
		epochs[i] = r.register(testNode(nodes[i], 2))
	}
	var ids []string
	for i := range jobs {
		ids = append(ids, m.waitsIn(i%3, ""))
	}
	var mu sync.Mutex
	ran := make(map[string]int) // by ULID
	work := func(cell int) (busy bool) {
		if _, err := m.At(cell).Take(m.ctx(), nodes[cell], []string{echo}, 1); err != nil {
			t.Error(err)
		}
		hb, err := m.At(cell).Heartbeat(m.ctx(), Heartbeat{Node: nodes[cell], Epoch: epochs[cell]})
		if err != nil {
			t.Error(err)
		}
		for _, a := range hb.Start {
			c := succeed(nodes[cell], epochs[cell], a.Job)
			out, err := m.At(cell).Complete(m.ctx(), c)
			if err != nil {
				t.Error(err)
			}
			if busy = true; out == Completed {
				mu.Lock()
				ran[MovedID(a.Job, 0)]++
				mu.Unlock()
			}
		}
		return busy
	}
	drive := func(cell int) {
		if _, err := m.DriveMoves(m.ctx(), m.At(cell), 0, 8); err != nil {
			t.Error(err)
		}
	}
	together(writers, func(i int) {
		rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
		for round := range rounds {
			from := rng.IntN(3)
			if _, err := m.At(from).BeginMoves(m.ctx(), echo, Target{Cell: (from + 1 + rng.IntN(2)) % 3, Slots: 1}, 0, 4); err != nil {
				t.Error(err)
			}
			drive(rng.IntN(3))
			if round%10 == i {
				if s, err := m.Cancel(m.ctx(), "", ids[rng.IntN(jobs)]); err != nil && freeslot.CodeOf(err) != freeslot.CodeUnavailable {
					t.Errorf("%+v, %v; want no error or freeslot.CodeOf(err) == freeslot.CodeUnavailable", s, err)
				}
			}
			if round%5 == 0 {
				work(rng.IntN(3))
			}
		}
	})
	for busy := true; busy; {
		busy = false
		m.later()
		for cell := range 3 {
			if _, err := m.DriveMoves(m.ctx(), m.At(cell), 0, 2*jobs); err != nil {
				t.Error(err)
			}
		}
		for cell := range 3 { // nothing is on its way any more
			busy = work(cell) || busy
		}
	}
	for _, id := range ids {
		s := m.job(id)
		n := ran[MovedID(id, 0)]
		if s.ID != id || !(s.State == freeslot.StateSucceeded && n == 1 || s.State == freeslot.StateCancelled && n == 0) {
			t.Errorf("%+v was run %d times", s, n)
		}
	}
	if got, want := m.listed(""), slices.Sorted(slices.Values(ids)); !slices.Equal(got, want) {
		t.Errorf("%d are listed of %d", len(got), len(want))
	}
	hops := 0
	for _, r := range m.rigs {
		for _, id := range r.recordIDs() {
			hop := 0
			_, _ = fmt.Sscan(r.field(r.l.Job(id), "hop"), &hop)
			hops = max(hops, hop)
		}
	}
	if hops == 0 {
		t.Error("no job has moved")
	}
	m.sound()
}

package locked

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/class"
	"github.com/freeslot/freeslot/internal/selection"
)

func online(id string, slots int) *cell.NodeState {
	return &cell.NodeState{
		Node:  freeslot.Node{ID: id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: "tts"}}},
		Epoch: "e1", Status: freeslot.StatusOnline,
	}
}

func choose(s *State) *selection.Node {
	q := selection.Query{}
	var room [1]*selection.Node
	if got := s.Class("tts", &freeslot.Requirement{}).Choose(room[:0], &q, selection.NewSource(1)); len(got) == 1 {
		return got[0]
	}
	return nil
}

// TestSnapshotNeverChanges: the holder of a snapshot sees the same fleet for ever.
func TestSnapshotNeverChanges(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	s.Put(online("n1", 4))
	before := s.Snapshot()
	s.Heartbeat("n1", 3, freeslot.StatusDraining, 1, `{"cpu":1}`)
	s.Put(online("n2", 4))
	s.Remove("n1")
	if got, ok := before.State("n1"); !ok || got.Used != 0 || got.Status != freeslot.StatusOnline || before.Size() != 1 {
		t.Errorf("the snapshot changed: %+v", got)
	}
	if _, ok := before.State("n2"); ok {
		t.Error("a node joined a snapshot that was there before it")
	}
	if now := s.Snapshot(); now.Version() != before.Version()+3 || now.Size() != 1 {
		t.Errorf("version %d after %d, %d nodes", now.Version(), before.Version(), now.Size())
	}
}

// TestReservationOutlivesHeartbeat: a reservation without an answer counts, also after heartbeats.
func TestReservationOutlivesHeartbeat(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	s.Put(online("n1", 1))
	s.Heartbeat("n1", 0, freeslot.StatusOnline, 0, "")
	node := choose(s)
	if node == nil || !node.TryTake(1) {
		t.Fatal("n1 cannot be taken")
	}
	s.Heartbeat("n1", 0, freeslot.StatusOnline, 0, "")
	changed := online("n1", 1)
	changed.Node.Labels = map[string]string{"zone": "a"}
	s.Put(changed)
	if choose(s) != nil {
		t.Error("the slot was given twice")
	}
	node.Release(1)
	if choose(s) == nil {
		t.Error("a released slot stays taken")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for reason, want := range map[cell.RefusalReason]string{
		cell.RefusedFull: "full", cell.RefusedDraining: "draining", cell.RefusedSilent: "silent", cell.RefusedGone: "silent",
	} {
		s := New(Config{})
		s.Put(online("n1", 2))
		s.Heartbeat("n1", 0, freeslot.StatusOnline, 0, "")
		s.Refused(cell.Refusal{Node: "n1", Reason: reason, Used: 2, MaxConcurrency: 2})
		s.Refused(cell.Refusal{Node: "unknown", Reason: reason})
		class := s.Settle("tts", &freeslot.Requirement{})
		if got := class.Breakdown(&selection.Query{}); choose(s) != nil || got[want] != 1 || class.Fits() != 1 || class.MaxSlots() != 2 {
			t.Errorf("after %s the breakdown is %v", reason, got)
		}
		s.Heartbeat("n1", 0, freeslot.StatusOnline, 1, "")
		if choose(s) == nil {
			t.Errorf("after %s a heartbeat does not bring the node back", reason)
		}
	}
}

// TestMembersOutliveHeartbeats: lists are rebuilt for profiles, never for load.
func TestMembersOutliveHeartbeats(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	s.Put(online("n1", 2))
	list := func() *selection.Class { return s.Settle("tts", &freeslot.Requirement{}) }
	first := list()
	s.Heartbeat("n1", 1, freeslot.StatusDraining, 0, "")
	s.Put(online("n1", 2))
	s.Remove("unknown")
	if list() != first {
		t.Error("a heartbeat dropped the list")
	}
	s.Put(online("n1", 3))
	second := list()
	s.Put(online("n2", 3))
	third := list()
	s.SetConfig(&selection.Config{Enabled: true})
	fourth := list()
	s.Remove("n2")
	if second == first || third == second || fourth == third || list() == fourth {
		t.Error("a list outlived what it was made from")
	}
}

// TestSettleWaits: a choice goes on with the former list while another goroutine builds a new one;
// Settle waits for it.
func TestSettleWaits(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	s.Put(online("n1", 1))
	s.Heartbeat("n1", 0, freeslot.StatusOnline, 0, "")
	former := s.Settle("tts", &freeslot.Requirement{})
	s.Put(online("n2", 1))
	r := &freeslot.Requirement{}
	l, _ := s.members.list(class.Hash("tts", r), "tts", r)
	l.rebuild.Lock()
	if node := choose(s); node == nil || node.ID() != "n1" {
		t.Error("a choice waited, or found nothing")
	}
	settled := make(chan *selection.Class, 1)
	go func() { settled <- s.Settle("tts", &freeslot.Requirement{}) }()
	if s.members.of(s.Snapshot(), "tts", r, false) != former {
		t.Error("a choice did not use the former list")
	}
	for range 1000 { // room for it to come back too early
		select {
		case got := <-settled:
			t.Fatalf("Settle did not wait: %d nodes", got.Fits())
		default:
			runtime.Gosched()
		}
	}
	l.rebuild.Unlock()
	if got := <-settled; got.Fits() != 2 {
		t.Errorf("the settled list has %d nodes", got.Fits())
	}
}

// TestCells: a node is in the cell of its id.
func TestCells(t *testing.T) {
	t.Parallel()
	s := New(Config{Cells: 64})
	for _, id := range names("n", 20) {
		s.Put(online(id, 1))
		if node, ok := s.Node(id); !ok || node.Cell() != cell.NodeCell(id, 64) {
			t.Errorf("%s is in cell %d", id, node.Cell())
		}
	}
	if _, ok := s.Node("unknown"); ok {
		t.Error("there is a node without a Put")
	}
}

// TestListsAreBounded: any number of classes does not fill the memory, neither by their number nor
// by their candidates.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	s := New(Config{})
	for i := range listLimit + 10 {
		s.Settle("tts", &freeslot.Requirement{Pool: fmt.Sprintf("pool-%d", i)})
	}
	if n := len(s.members.byHash); n != 10 {
		t.Errorf("%d lists", n)
	}
	s.Put(online("n1", 1))
	s.Settle("tts", &freeslot.Requirement{})
	if s.members.candidates != 1 {
		t.Errorf("%d candidates counted", s.members.candidates)
	}
	s.members.candidates = candidateLimit
	s.Settle("asr", &freeslot.Requirement{})
	if m := s.members; len(m.byHash) != 1 || m.candidates != 0 {
		t.Errorf("%d lists, %d candidates", len(m.byHash), m.candidates)
	}
}

// TestListsShareNothing: the caller can change the requirement afterwards.
func TestListsShareNothing(t *testing.T) {
	t.Parallel()
	r := freeslot.Requirement{
		Services: []string{"asr"}, Labels: map[string]string{"a": "b"},
		LabelRules: []freeslot.LabelRule{{Label: "a", Operator: "in", Values: []string{"b"}}},
	}
	same, m := r.Clone(), newMembers()
	kept, _ := m.list(7, "tts", &r)
	r.Services[0], r.Labels["a"], r.LabelRules[0].Values[0] = "x", "x", "x"
	if !kept.identity.Is("tts", &same) {
		t.Error("the list changed with the requirement")
	}
	// Two requirements in one place: the later one has it, and neither gets the other's list.
	p, q := &freeslot.Requirement{Pool: "p"}, &freeslot.Requirement{Pool: "q"}
	first, _ := m.list(1, "tts", p)
	second, _ := m.list(1, "tts", q)
	third, _ := m.list(1, "asr", q)
	if !first.identity.Is("tts", p) || !second.identity.Is("tts", q) || !third.identity.Is("asr", q) {
		t.Error("a collision was taken for a hit")
	}
}

// TestRace: many goroutines change, choose and read. In the end all see the last change of each
// node.
func TestRace(t *testing.T) {
	t.Parallel()
	const writers, choosers, rounds, last = 4, 4, 300, 60
	n := New(Config{Cells: cells})
	n.Put(online("refused", 1))
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range rounds {
				id := fmt.Sprintf("n%d-%d", w, i%5)
				switch i % 7 {
				case 0:
					n.Remove(id)
				case 1, 3:
					n.Put(online(id, 1+i%3))
				case 6:
					n.SetConfig(&selection.Config{Enabled: i%2 == 0})
				default:
					n.Heartbeat(id, i%2, freeslot.StatusOnline, int64(i), "")
				}
			}
			for i := range last {
				id := fmt.Sprintf("n%d-%d", w, i)
				n.Put(online(id, 5))
				n.Heartbeat(id, i%5, freeslot.StatusOnline, rounds, "")
			}
		})
	}
	for c := range choosers {
		all.Go(func() {
			rnd, room := selection.NewSource(uint64(c)), make([]*selection.Node, 0, 2)
			for i := range rounds {
				q := selection.Query{Now: int64(i), Want: 2}
				for _, node := range n.Class("tts", &freeslot.Requirement{}).Choose(room, &q, rnd) {
					if node.TryTake(1) {
						node.Release(1)
					}
				}
				n.States()
				n.Settle("tts", &freeslot.Requirement{})
				n.Refused(cell.Refusal{Node: "refused", Reason: cell.RefusedSilent})
			}
		})
	}
	all.Wait()
	if got := n.States(); len(got) != writers*last+1 {
		t.Errorf("%d nodes, expected %d", len(got), writers*last+1)
	}
	for w := range writers {
		for i := range last {
			if s, ok := n.State(fmt.Sprintf("n%d-%d", w, i)); !ok || s.Used != i%5 || s.Node.MaxConcurrency != 5 {
				t.Errorf("n%d-%d is %+v", w, i, s)
			}
		}
	}
	if got := choosable(n, "tts", &freeslot.Requirement{}, selection.Query{Now: rounds}); len(got) != writers*last {
		t.Errorf("%d nodes can be chosen", len(got))
	}
}

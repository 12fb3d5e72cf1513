package cache

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
)

// A list is built again when a profile changes, and for nothing else.
func TestClassIsRebuiltForProfilesOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	n := testNode("a", 2)
	n.Pools = []string{"z", "a", "z"} // the agent's order; Redis has them sorted
	r.register(n)
	r.run()
	var all freeslot.Requirement
	list := r.Class("echo", &all)
	same := func(why string) {
		t.Helper()
		if r.Class("echo", &all) != list || r.Settle("echo", &all) != list {
			t.Errorf("rebuilt after %s", why)
		}
	}
	renewed := func(why string, fits int) {
		t.Helper()
		next := r.Settle("echo", &all)
		if next == list {
			t.Errorf("not rebuilt after %s", why)
		}
		if next.Fits() != fits {
			t.Errorf("after %s %d nodes fit, want %d", why, next.Fits(), fits)
		}
		list = next
		same("nothing")
	}
	same("nothing")
	r.heartbeat("a", `{"x":1}`)
	r.converges()
	same("a heartbeat")
	job := r.submit("a")
	r.submit("a")
	r.converges()
	same("slot_full")
	r.complete("a", job)
	r.converges()
	same("slot_free")
	r.epochs["a"] = cell.NewEpoch()
	r.register(n)
	r.converges()
	same("a new epoch with the same profile")
	r.do("HINCRBY", r.cell.Layout().Version(), "revision", "1") // a gap: the profile is read from Redis
	r.heartbeat("a", `{"x":2}`)
	r.converges()
	same("reading the same profile again")

	r.register(testNode("b", 1))
	r.converges()
	renewed("a new node", 2)
	n.MaxConcurrency = 3
	r.register(n)
	r.converges()
	renewed("another max_concurrency", 2)
	if list.MaxSlots() != 3 {
		t.Errorf("max slots %d", list.MaxSlots())
	}
	n.Services = []freeslot.Service{{Name: "other"}}
	r.register(n)
	r.converges()
	renewed("other services", 1)
	r.deregister("b")
	r.converges()
	renewed("a node that left", 0)
}

// A fleet that registers node by node does not have every list made for every node,
// and the last node is found all the same.
func TestClassRests(t *testing.T) {
	t.Parallel()
	const fleet = 2000
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	var all freeslot.Requirement
	put := func(i int) {
		r.put(&cell.NodeState{Node: testNode(nodeName(i), 1), Status: freeslot.StatusOnline})
	}
	for i := range fleet {
		put(i)
	}
	lists, last := 0, r.Class("echo", &all)
	for i := range fleet {
		put(fleet + i)
		if next := r.Class("echo", &all); next != last {
			lists, last = lists+1, next
		}
	}
	if lists > fleet/4 {
		t.Errorf("%d lists for %d nodes", lists, fleet)
	}
	eventually(t, "the whole fleet", func() bool { return r.Class("echo", &all).Fits() == 2*fleet })
}

// A configuration that was applied counts for the next choice, however short a time
// ago the list was made.
func TestClassFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	for i := range 100 {
		r.put(&cell.NodeState{Node: testNode(nodeName(i), 1), Status: freeslot.StatusOnline})
	}
	german := freeslot.Requirement{Pool: "p"}
	for i := range 50 {
		members := []string{nodeName(i), nodeName(i + 1)}[:1+i%2]
		r.SetConfig(&selection.Config{Enabled: true, Pools: selection.Pools{{ID: "p", Members: members}}})
		if got := r.Class("echo", &german).Fits(); got != len(members) {
			t.Fatalf("%d nodes fit, want %d", got, len(members))
		}
	}
}

// A share counts for the next list, and is tried first.
func TestClassFollowsTheShare(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	for i := range 100 {
		r.put(&cell.NodeState{Node: testNode(nodeName(i), 1), Status: freeslot.StatusOnline, LastHeartbeatMS: time.Now().UnixMilli()})
	}
	first := func(n int) (inShare int) {
		rnd, query := selection.NewSource(1), selection.Query{Now: r.clock.now(), SilenceLimit: time.Hour}
		for range n {
			chosen := r.Class("echo", new(freeslot.Requirement)).Choose(make([]*selection.Node, 0, 1), &query, rnd)
			if len(chosen) == 1 && selection.NewShare("a", []string{"a", "b"}).Has(chosen[0].ID()) {
				inShare++
			}
		}
		return inShare
	}
	if got := first(100); got > 80 {
		t.Fatalf("%d of 100 are of the share before there is one", got)
	}
	r.SetShare(selection.NewShare("a", []string{"a", "b"}))
	eventually(t, "the share", func() bool { return first(100) == 100 })
	r.SetShare(nil)
	eventually(t, "no share", func() bool { return first(100) < 80 })
}

// Spellings of one requirement share a list; different ones do not.
func TestClassesAreCanonical(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.register(testNode("a", 2))
	r.run()
	one := r.Class("echo", &freeslot.Requirement{Services: []string{"x", "y"}, SourceLanguage: "DE_at"})
	two := r.Class("echo", &freeslot.Requirement{Services: []string{"y", "x", "echo", "y"}, SourceLanguage: "de-AT"})
	if one != two {
		t.Error("two lists for one class")
	}
	if r.Class("echo", &freeslot.Requirement{Pool: "p"}) == r.Class("echo", &freeslot.Requirement{Pool: "q"}) {
		t.Error("one list for two classes")
	}
	if n := r.classes.Size(); n != 3 {
		t.Errorf("%d classes", n)
	}
}

// Live figures are shared between the cache and all lists, old ones included.
func TestFiguresAreShared(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	r.register(testNode("a", 4))
	r.run()
	old := r.Class("echo", &freeslot.Requirement{})
	var room [1]*selection.Node
	query := selection.Query{Now: r.clock.now(), SilenceLimit: r.SilenceLimit()}
	before := old.Choose(room[:0], &query, selection.NewSource(1))[0]
	if !before.TryTake(1) {
		t.Fatal("no free slot")
	}
	r.register(testNode("a", 9)) // another profile while a reservation is under way
	r.converges()
	now, _ := r.Node("a")
	if _, pending := now.Load(); pending != 1 {
		t.Errorf("%d pending after the profile changed", pending)
	}
	before.Release(1)
	if _, pending := now.Load(); pending != 0 {
		t.Errorf("%d pending after the release", pending)
	}
	// The node leaves and comes back: the former node in the hands of a caller does no harm.
	before.TryTake(1)
	r.deregister("a")
	r.register(testNode("a", 9))
	r.converges()
	now, _ = r.Node("a")
	if _, pending := now.Load(); pending != 0 {
		t.Errorf("%d pending on the new incarnation", pending)
	}
	before.Confirm(1, 3)
	if used, pending := now.Load(); used != 0 || pending != 0 {
		t.Errorf("%d used, %d pending on the new incarnation", used, pending)
	}
}

// Clients name the classes: there can be any number, and not all are kept.
func TestClassLimit(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.register(testNode("a", 2))
	r.run()
	var askers sync.WaitGroup
	for i := range 4 {
		askers.Go(func() {
			for j := range classLimit {
				requirement := freeslot.Requirement{Labels: map[string]string{"x": fmt.Sprintf("%d-%d", i, j)}}
				if fits := r.Class("echo", &requirement).Fits(); fits != 0 {
					t.Errorf("%d nodes fit", fits)
				}
				if n := r.classes.Size(); n > classLimit+8 {
					t.Errorf("%d classes", n)
					return
				}
			}
		})
	}
	askers.Wait()
	if n := r.counter(r.metrics.classesDropped); n < 2*classLimit {
		t.Errorf("%d dropped", n)
	}
	if fits := r.Class("echo", &freeslot.Requirement{}).Fits(); fits != 1 {
		t.Errorf("%d nodes fit in the end", fits)
	}
}

// Nor are they kept when they are few and long; those in use stay.
func TestListLimit(t *testing.T) {
	t.Parallel()
	const fleet, kept = 100, 40
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.listLimit = kept * fleet
	for i := range fleet {
		n := testNode(nodeName(i), 1)
		n.Languages.ASR = []string{"de"}
		r.put(&cell.NodeState{Node: n, Status: freeslot.StatusOnline})
	}
	used := freeslot.Requirement{SourceLanguage: "de"}
	list := r.Class("echo", &used)
	for i := range 10 * kept {
		requirement := freeslot.Requirement{SourceLanguage: fmt.Sprintf("de-x-n%d", i)}
		for range 3 { // built again, it does not count twice
			if fits := r.Settle("echo", &requirement).Fits(); fits != fleet {
				t.Fatalf("%d nodes fit", fits)
			}
			if i == 0 {
				r.profiles.Add(1)
				list = r.Settle("echo", &used)
			}
		}
		if r.Class("echo", &used) != list {
			t.Fatalf("the class that is used all the time was dropped for the %d-th other", i)
		}
		if n := r.classes.Size(); n > kept+1 {
			t.Fatalf("%d classes", n)
		}
		if n := r.listed.Load(); n > (kept+1)*fleet || n < fleet {
			t.Fatalf("%d candidates listed", n)
		}
	}
	if n := r.counter(r.metrics.classSweeps); n < 5 {
		t.Errorf("swept %d times", n)
	}
}

// When all are in use some are dropped all the same, and their places with them.
func TestEverythingInUse(t *testing.T) {
	t.Parallel()
	const fleet, kept = 10, 40
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	r.listLimit = kept * fleet
	for i := range fleet {
		r.put(&cell.NodeState{Node: testNode(nodeName(i), 1), Status: freeslot.StatusOnline})
	}
	classes := make([]freeslot.Requirement, 2*kept)
	for i := range classes {
		classes[i].PreferredPool = fmt.Sprintf("p%d", i)
	}
	for range 20 {
		for i := range classes {
			if fits := r.Class("echo", &classes[i]).Fits(); fits != fleet {
				t.Fatalf("%d nodes fit", fits)
			}
		}
		if n := r.listed.Load(); n > (kept+1)*fleet || int(n) != fleet*r.classes.Size() {
			t.Fatalf("%d candidates listed in %d classes", n, r.classes.Size())
		}
	}
	r.lookups.Range(func(_ uint64, l *lookup) bool {
		l.class.rebuild.Lock()
		defer l.class.rebuild.Unlock()
		if l.class.dropped {
			t.Error("a dropped class is remembered")
		}
		return true
	})
}

// Settle knows every profile that the cache knew before the call, also while others build lists.
func TestSettledIsNeverStale(t *testing.T) {
	t.Parallel()
	const fleet, readers = 300, 4
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never}, withoutEvents(true))
	// The loop's part is ours: it puts one node after the other.
	r.syncedAt.Store(0)
	var known atomic.Int64
	var all freeslot.Requirement
	var readersDone sync.WaitGroup
	stop := make(chan struct{})
	for range readers {
		readersDone.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				want := int(known.Load())
				if got := r.Settle("echo", &all).Fits(); got < want {
					t.Errorf("%d nodes fit, %d were known", got, want)
					return
				}
				if got := r.Class("echo", &all).Fits(); got > fleet {
					t.Errorf("%d nodes fit", got)
				}
			}
		})
	}
	for i := range fleet {
		r.put(&cell.NodeState{Node: testNode(nodeName(i), 1), Status: freeslot.StatusOnline})
		known.Add(1)
	}
	close(stop)
	readersDone.Wait()
	if got := r.Settle("echo", &all).Fits(); got != fleet {
		t.Errorf("%d nodes fit in the end", got)
	}
}

// Readers of every kind while events stream; the race detector is the judge.
func TestReadersWhileEventsStream(t *testing.T) {
	t.Parallel()
	const fleet = 10
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: time.Millisecond, RefreshSize: 3})
	for i := range fleet {
		r.register(testNode(nodeName(i), 2))
	}
	r.run()
	stop := make(chan struct{})
	var readers sync.WaitGroup
	loop := func(read func(random *selection.Source)) {
		for seed := range 2 {
			readers.Go(func() {
				random := selection.NewSource(uint64(seed))
				for {
					select {
					case <-stop:
						return
					default:
						read(random)
					}
				}
			})
		}
	}
	pools := []freeslot.Requirement{{}, {Pool: "even"}, {Pool: "odd"}}
	loop(func(random *selection.Source) {
		var room [3]*selection.Node
		requirement := &pools[random.Uint64()%3]
		q := selection.Query{Want: 3, Now: r.clock.now(), SilenceLimit: r.SilenceLimit()}
		for _, n := range r.Class("echo", requirement).Choose(room[:0], &q, random) {
			if n.TryTake(1) {
				if random.Uint64()%2 == 0 {
					n.Release(1)
				} else {
					n.Confirm(1, 1)
				}
			}
		}
	})
	loop(func(random *selection.Source) {
		r.Settle("echo", &pools[random.Uint64()%3]).Breakdown(&selection.Query{Now: r.clock.now()})
		r.Refused(cell.Refusal{Node: nodeName(int(random.Uint64() % fleet)), Reason: cell.RefusedFull, Used: 2})
	})
	loop(func(random *selection.Source) {
		for _, s := range r.States() {
			if s.Node.ID == "" || s.Node.MaxConcurrency == 0 {
				t.Errorf("half a node: %+v", s)
			}
		}
		r.State(nodeName(int(random.Uint64() % fleet)))
		_ = r.Health()
	})
	loop(func(random *selection.Source) {
		r.CheckedState(t.Context(), nodeName(int(random.Uint64()%fleet)))
	})
	for i := range 200 {
		id := nodeName(i % fleet)
		switch i % 5 {
		case 0:
			n := testNode(id, 1+i%7)
			n.Pools = []string{[]string{"even", "odd"}[i%2]}
			r.register(n)
		case 1:
			r.deregister(id)
			r.register(testNode(id, 2))
		default:
			r.heartbeat(id, fmt.Sprintf(`{"i":%d}`, i))
		}
	}
	close(stop)
	readers.Wait()
	for i := range fleet {
		r.heartbeat(nodeName(i), `{}`) // what the readers made up is corrected
	}
	r.converges()
	for i := range fleet {
		n, _ := r.Node(nodeName(i))
		if _, pending := n.Load(); pending != 0 {
			t.Errorf("%s has %d pending", n.ID(), pending)
		}
	}
}

package faults

import (
	"context"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// upgradeRate is more than the nodes can do for some of the time, so that jobs wait.
	upgradeRate = 60
	// stepPause is how long each mixture of programs runs, at least; endPause those that are all of
	// one release.
	stepPause = 300 * time.Millisecond
	endPause  = time.Second
)

// step is one step of a change of releases: a program joins, and another one leaves. With one name
// for both, the program is restarted as the other release.
type step struct{ joins, leaves string }

// upgrading is the way to the next release: replicas and nodes replace others, or are restarted.
var upgrading = []step{{"r1", "r1"}, {"n5", "n3"}, {"n1", "n1"}, {"r3", "r2"}, {"n6", "n4"}, {"n2", "n2"}}

// backwards is the way back, the last to come the first to go.
func backwards(steps []step) (back []step) {
	for _, s := range slices.Backward(steps) {
		back = append(back, step{joins: s.leaves, leaves: s.joins})
	}
	return back
}

// TestUpgrade replaces the programs of the previous release by those of this build, one by one and
// under load, and goes the same way back.
func TestUpgrade(t *testing.T) {
	cells := []int{1}
	if os.Getenv("SHORT") != "1" {
		cells = append(cells, 2)
	}
	old := buildRelease(t)
	for _, n := range cells {
		t.Run("cells="+strconv.Itoa(n), func(t *testing.T) { runUpgrade(t, old, n) })
	}
}

func runUpgrade(t *testing.T, old string, cells int) {
	seed := seedOfRun(t)
	t.Logf("this run again: SEED=%d go test -C test/faults -run '^TestUpgrade$' .", seed)
	folder := runFolder(t, "upgrade-"+strconv.Itoa(cells))
	f := newFleet(t, NewRecorder(), folder, fleetConfig{
		replicas: 2, slots: []int{2, 4, 3, 2}, cells: cells, interval: 500 * time.Millisecond, limit: 2 * time.Second, programs: old,
		quick: seed%2 == 0, replica: map[string]any{"retention_bytes": mostRetained},
	})
	u := &upgrade{fleet: f, old: old, now: programs, seed: seed, open: &register{}}
	u.cfg.programs = u.now
	u.addReplica("r3")
	u.addNode("n5", 3)
	u.addNode("n6", 2)

	history := u.run()
	drains := count(history, Drained)
	t.Logf("%d jobs with a key were accepted the same by two replicas, %d nodes drained", u.keyed.Load(), drains)
	if u.keyed.Load() == 0 || drains == 0 {
		t.Error("expected some of each")
	}
	judge(t, history, true, folder, u.checkLogs()...) // run reports a fleet without rest itself
}

// upgrade is a fleet with programs of the previous release and of this build.
type upgrade struct {
	*fleet
	old, now string // folders of programs
	seed     uint64
	open     *register
	next     atomic.Int64
	keyed    atomic.Int64 // jobs that two replicas accepted as the same

	mu   sync.Mutex
	late map[string]int // guarded by mu; submissions by HTTP that were put off, by the reason
}

// run goes there and back under load, brings everything to rest, and returns all that was seen.
func (u *upgrade) run() *History {
	all, endAll := context.WithCancel(u.t.Context())
	submit, endSubmit := context.WithCancel(all)
	defer endAll()
	defer endSubmit()
	var loads, others sync.WaitGroup
	for i := range loaders {
		l := newLoader(u.t, u.fleet, loaderName(i), u.urls("r"+strconv.Itoa(1+i%2)), u.seed*100+uint64(i), &u.next, u.open)
		loads.Go(func() { l.run(submit, all, upgradeRate/loaders) })
		if i == 0 {
			others.Go(func() { u.submitKeyed(submit, all, l) })
		}
	}
	others.Go(func() { u.look(submit, mathrand.New(mathrand.NewPCG(u.seed, 3)), u.open) })
	others.Go(func() { u.watchSlots(submit) })
	others.Go(func() { u.drainAny(submit, mathrand.New(mathrand.NewPCG(u.seed, 4))) })

	pause(all, endPause)
	u.change(all, upgrading, u.now)
	u.rec.Add(Event{Kind: Fault, Note: "all is new"})
	pause(all, endPause)
	u.change(all, backwards(upgrading), u.old)
	u.rec.Add(Event{Kind: Fault, Note: "all is old"})
	pause(all, endPause)
	endSubmit()
	others.Wait()
	u.undrainAll()

	final, rested := u.awaitRest(restLimit, &loads)
	if !rested {
		u.t.Errorf("the fleet has not come to rest, and nothing has moved for %s", restLimit)
	}
	endAll()
	loads.Wait()
	late, cancel := context.WithTimeout(u.t.Context(), restLimit)
	defer cancel()
	u.askAgain(late, u.open)
	u.startAs("r3", u.now)
	u.sameListing(late, final)
	u.awaitRetained(late)
	history := u.history()
	history.Final = final
	return history
}

// change takes the steps with the programs of a folder.
func (u *upgrade) change(ctx context.Context, steps []step, programs string) {
	for _, s := range steps {
		u.rec.Add(Event{Kind: Fault, Note: fmt.Sprintf("%s joins, %s leaves", s.joins, s.leaves)})
		if s.joins == s.leaves {
			u.programs[s.leaves].stop()
		}
		u.startAs(s.joins, programs)
		if s.joins != s.leaves {
			pause(ctx, stepPause)
			u.programs[s.leaves].stop()
		}
		u.rec.Add(Event{Kind: Fault, Who: s.joins, Note: "mended"})
		pause(ctx, stepPause)
	}
}

// startAs starts a stopped program from a folder, and returns when it is up.
func (u *upgrade) startAs(name, programs string) {
	p := u.programs[name]
	p.args[0] = filepath.Join(programs, filepath.Base(p.args[0]))
	p.start()
	select {
	case <-p.isUp():
	case <-time.After(startLimit):
		u.t.Fatalf("%s is not up after %s; see %s", name, startLimit, u.folder)
	}
}

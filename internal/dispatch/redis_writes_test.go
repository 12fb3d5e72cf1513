package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestRefusedWritesAreNoContact: Redis answers reads and refuses heartbeats for two limits. No node
// is suggested for reaping before heartbeats could be written for a limit. Readiness is red
// meanwhile, and it and the errors of clients name the reason.
func TestRefusedWritesAreNoContact(t *testing.T) {
	t.Parallel()
	ways := map[string]func(t *testing.T, r *rig, server *redistest.Server) (undo func()){
		"MISCONF": func(t *testing.T, _ *rig, server *redistest.Server) func() { return redistest.FailSaves(t, server) },
	}
	for code, how := range refusing {
		ways[code] = func(t *testing.T, r *rig, _ *redistest.Server) func() {
			run(t, r.client, how[0])
			return func() { run(t, r.client, how[1]) }
		}
	}
	for code, refuse := range ways {
		for _, nodes := range []int{1, 20} {
			t.Run(fmt.Sprintf("%s/%d nodes", code, nodes), func(t *testing.T) {
				t.Parallel()
				const limit, round = 8 * time.Second, 500 * time.Millisecond
				server := redistest.New(t)
				r := newRig(t, server.Target)
				r.agent(node("n0", 1))
				fleet := &timed{census: new(census), limit: limit}
				for i := range nodes {
					n := node(fmt.Sprintf("n%d", i), 1)
					fleet.nodes = append(fleet.nodes, selection.NewNode(selection.Compile(&n), 0))
				}
				rep := r.unstarted("r1", func(c *replicaConfig) {
					c.nodes = func(c *cache.Cache) Nodes { fleet.Cache = c; return fleet }
				})
				start(t, rep.cache)
				c := rep.byCell[0]
				due, reaper := newDueJobs(c), newReaper(c)
				suggested := 0
				for end := fleet.now + limit; fleet.now <= end; fleet.now += round {
					due.handle()
					reaper.runOnce()
				}
				if ok, detail := rep.Writable(); !ok || detail != "" {
					t.Errorf("before: writable is %t, %q", ok, detail)
				}

				undo := refuse(t, r, server)
				for end := fleet.now + 2*limit; fleet.now < end; fleet.now += round {
					due.handle()
					reaper.runOnce()
					suggested += len(reaper.alive)
				}
				if ok, detail := rep.Writable(); ok || !strings.Contains(detail, code) {
					t.Errorf("meanwhile: writable is %t, %q; expected the reason %s", ok, detail, code)
				}
				_, err := rep.place(job(), newRecorder(t))
				if e := asError(t, err, freeslot.CodeUnavailable); code != "MASTERDOWN" && !strings.Contains(e.Message, code) {
					t.Errorf("a submit is told %q, expected the reason %s", e.Message, code)
				}

				undo()
				for _, n := range fleet.nodes {
					fleet.silent = append(fleet.silent, cache.SilentNode{ID: n.ID(), Epoch: "e"})
				}
				for end := fleet.now + limit; fleet.now < end; fleet.now += round {
					waittest.Until(t, "a write", func() bool { due.handle(); return *c.refusal.Load() == "" })
					reaper.runOnce()
					suggested += len(reaper.alive)
				}
				if suggested > 0 {
					t.Errorf("%d times a node was suggested before heartbeats were written for a limit", suggested)
				}
				if ok, detail := rep.Writable(); !ok || detail != "" {
					t.Errorf("after: writable is %t, %q", ok, detail)
				}
				// The pause of a fleet that is silent as a whole ends, too.
				for end := fleet.now + 5*limit; fleet.now < end && len(reaper.alive) == 0; fleet.now += round {
					due.handle()
					reaper.runOnce()
				}
				if len(reaper.alive) != nodes {
					t.Errorf("then %d of %d silent nodes are suggested", len(reaper.alive), nodes)
				}
			})
		}
	}
}

// TestWritable: what readiness says where only a part of Redis takes writes.
func TestWritable(t *testing.T) {
	t.Parallel()
	rep := newCells(t, 2, redistest.Shared(t)).unstarted("r1")
	said := func(ok bool, want string) {
		t.Helper()
		if got, detail := rep.Writable(); got != ok || detail != want {
			t.Errorf("writable is %t, %q; expected %t, %q", got, detail, ok, want)
		}
	}
	said(true, "")
	rep.byCell[1].setOutOfMemory(true, zap.Skip())
	said(true, "degraded: Redis is almost out of memory (OOM) for 1 of 2 cells: submits are refused there as overloaded, all else goes on")
	reason := "MISCONF (x)"
	rep.byCell[1].refusal.Store(&reason)
	said(true, "degraded: Redis refuses writes for 1 of 2 cells: MISCONF (x)")
	rep.byCell[0].refusal.Store(&reason)
	said(false, "Redis refuses writes: MISCONF (x)")
}

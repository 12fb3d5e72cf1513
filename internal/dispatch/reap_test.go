package dispatch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// mortal makes a replica that soon takes silent nodes for dead.
func mortal(limit time.Duration) func(c *replicaConfig) {
	return func(c *replicaConfig) {
		c.cell = func(cc *cell.Config) { cc.HeartbeatLimit = limit }
	}
}

// beat sends heartbeats of a node until the end of the test, or until it is killed.
func (a *agent) beat() (kill func()) {
	done := make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			// Not deadline, which ends with the test.
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			_, err := a.cell.Heartbeat(ctx, cell.Heartbeat{Node: a.node.ID, Epoch: a.epoch, Status: freeslot.StatusOnline})
			cancel()
			if err != nil {
				a.rig.t.Errorf("heartbeat of %s: %v", a.node.ID, err)
			}
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	})
	var once sync.Once
	kill = func() { once.Do(func() { close(done); beating.Wait() }) }
	a.rig.t.Cleanup(kill)
	return kill
}

// A node dies with a job: it is taken out, and the job runs on another node.
func TestNodeIsKilled(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newRig(t, redis)
		agents, kill := make(map[string]*agent), make(map[string]func())
		for _, id := range []string{"n1", "n2"} {
			agents[id] = r.agent(node(id, 1))
			kill[id] = agents[id].beat()
		}
		rep := r.replica("r1", mortal(5*time.Second))
		sink := newRecorder(t)
		id := rep.mustWait(job(), 0, sink)
		first := sink.begun(id, 1)
		kill[first.Node]()
		second := sink.begun(id, 2)
		if second.Node == first.Node {
			t.Errorf("both attempts were on %s", first.Node)
		}
		agents[second.Node].attempt(id, 2)
		if s := sink.result(id); s.State != freeslot.StateSucceeded || s.Attempt != 2 || s.Node != second.Node {
			t.Errorf("%+v; want s.State == freeslot.StateSucceeded, s.Attempt == 2, s.Node == %v", s, second.Node)
		}
		sink.want(id, "assigned assigned result")
		s, err := rep.Job(deadline(t), tenant, id)
		if err != nil || s.Failures != 1 {
			t.Errorf("%+v, %v; want no error, s.Failures == 1", s, err)
		}
		waittest.Until(t, "the reaped node is counted", func() bool {
			return testutil.ToFloat64(rep.metrics.reaped.WithLabelValues("0")) == 1
		})
		waittest.Until(t, "the node is gone", func() bool { _, known := rep.cache.Node(first.Node); return !known })
	})
}

// Several replicas reap at once: each node is taken out once, and none that lives.
func TestReplicasReap(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t))
	alive := r.agent(node("alive", 1))
	alive.beat()
	for i := range 8 {
		r.agent(node(fmt.Sprintf("dead-%d", i), 1))
	}
	limit := mortal(5 * time.Second)
	reps := []*replica{r.replica("r1", limit), r.replica("r2", limit)}
	for _, rep := range reps {
		waittest.Until(t, "the dead are gone", func() bool { return rep.cache.Size() == 1 })
	}
	waittest.Until(t, "each is counted once", func() bool {
		sum := 0.0
		for _, rep := range reps {
			sum += testutil.ToFloat64(rep.metrics.reaped.WithLabelValues("0"))
		}
		return sum == 8
	})
	reps[0].mustWait(job(), 0, nil)
}

// census is a cache whose number of nodes the test sets.
type census struct {
	*cache.Cache
	nodes []*selection.Node
	// imported is how many of the nodes, from the last, have no agent.
	imported int
}

func (c *census) Epoch(id string) cell.Epoch {
	for i, n := range c.nodes {
		if n.ID() == id && i >= len(c.nodes)-c.imported {
			return cell.ImportEpoch
		}
	}
	return "e"
}

func (c *census) Size() int                   { return len(c.nodes) }
func (c *census) AllNodes() []*selection.Node { return c.nodes }

// If many nodes fall silent at once, they are left alone for a while.
func TestSelfPreservation(t *testing.T) {
	t.Parallel()
	r := newCells(t, 2, redistest.Shared(t))
	counted := new(census)
	rep := r.unstarted("r1", func(c *replicaConfig) {
		c.nodes = func(c *cache.Cache) Nodes { counted.Cache = c; return counted }
	})
	fleet := func(here, there int) {
		counted.nodes = nil
		for i := range here + there {
			n := node(fmt.Sprintf("n%d", i), 1)
			at := 0
			if i >= here {
				at = 1
			}
			counted.nodes = append(counted.nodes, selection.NewNode(selection.Compile(&n), at))
		}
	}
	const limit = time.Second
	reaper := newReaper(rep.byCell[0])
	gauge := func() float64 { return testutil.ToFloat64(rep.metrics.reapingPaused.WithLabelValues("0")) }
	for i, tt := range []struct {
		here, there      int // nodes
		imported         int // silent ones, from the last
		silent, all      int
		at               time.Duration
		spares, isPaused bool
	}{
		{here: 20, silent: 6, all: 6}, // 30 % is not more
		{here: 9, silent: 9, all: 9},  // too few to judge
		{here: 20, silent: 7, all: 7, at: 10 * limit, spares: true, isPaused: true},               // begins
		{here: 20, silent: 20, all: 20, at: 12*limit - 1, spares: true, isPaused: true},           // goes on
		{here: 20, silent: 20, all: 20, at: 12 * limit},                                           // and ends
		{here: 13, silent: 13, all: 13, at: 20 * limit},                                           // not a second time
		{here: 20, silent: 1, all: 1, at: 21 * limit},                                             // until it was well
		{here: 20, silent: 7, all: 7, at: 22 * limit, spares: true, isPaused: true},               // then anew
		{here: 20, silent: 1, all: 1, at: 23*limit - 1, spares: true, isPaused: true},             // until all had the time to return
		{here: 20, silent: 1, all: 1, at: 23 * limit},                                             // which ends it
		{here: 20, silent: 7, all: 7, at: 23*limit + 1, spares: true, isPaused: true},             // and anew
		{here: 20, at: 23*limit + 2},                                                              // all are back before
		{here: 20, silent: 7, all: 7, at: 30 * limit, spares: true, isPaused: true},               // a first wave
		{here: 20, silent: 7, all: 7, at: 32*limit - 2, spares: true, isPaused: true},             //
		{here: 20, silent: 1, all: 1, at: 32*limit - 1, spares: true, isPaused: true},             // most of it is back
		{here: 20, silent: 7, all: 7, at: 32*limit + 1, spares: true, isPaused: true},             // a second one begins anew
		{here: 20, silent: 1, all: 1, at: 33 * limit, spares: true, isPaused: true},               //
		{here: 20, silent: 7, all: 7, at: 33*limit + 1, spares: true, isPaused: true},             // and so on
		{here: 20, silent: 1, all: 1, at: 34 * limit},                                             // but not for ever
		{here: 40, imported: 20, silent: 7, all: 7, at: 40 * limit, spares: true, isPaused: true}, // of the nodes with an agent
		{here: 20, at: 41 * limit},                                                                // all are back
		{here: 5, there: 35, silent: 5, all: 12, at: 43 * limit},                                  // 30 % of the fleet
		{here: 5, there: 35, silent: 5, all: 13, at: 44 * limit, spares: true, isPaused: true},    // more
		{here: 5, there: 35, silent: 0, all: 40, at: 45 * limit},                                  // nothing to do here
		{here: 10, there: 90, silent: 4, all: 4, at: 46 * limit, spares: true, isPaused: true},    // much of this cell
		{here: 20, at: 47 * limit},                                                                // all are back
		{here: 20, silent: 7, all: 7, at: 50 * limit, spares: true, isPaused: true},               // a first wave
		{here: 20, silent: 7, all: 7, at: 51*limit + limit*6/8, spares: true, isPaused: true},     //
		{here: 20, silent: 1, all: 1, at: 51*limit + limit*7/8, spares: true, isPaused: true},     // for a moment
		{here: 20, silent: 7, all: 7, at: 53*limit + limit*6/8, spares: true, isPaused: true},     // a second one
		{here: 20, silent: 1, all: 1, at: 53*limit + limit*7/8 - 1, spares: true, isPaused: true}, // and again
		{here: 20, silent: 7, all: 7, at: 54*limit - 1, spares: true, isPaused: true},             // a third one
		{here: 20, silent: 7, all: 7, at: 54 * limit},                                             // has no time of its own
	} {
		fleet(tt.here, tt.there)
		counted.imported = tt.imported
		if got := reaper.pauseReaping(int64(tt.at), limit, tt.silent, tt.all); got != tt.spares {
			t.Errorf("%d: the pause is %v", i, got)
		}
		if got := gauge() == 1; got != tt.isPaused {
			t.Errorf("%d: the gauge is %v", i, got)
		}
	}
}

// timed is a census at a time that the test sets. From the first limit on, its silent nodes stay
// silent.
type timed struct {
	*census
	now, limit time.Duration
	silent     []cache.SilentNode
}

func (c *timed) Now() int64                  { return int64(c.now) }
func (c *timed) SilenceLimit() time.Duration { return c.limit }

func (c *timed) Silent(limit time.Duration) []cache.SilentNode {
	if c.now < limit {
		return nil
	}
	return c.silent
}

// A replica that loses contact with Redis for a moment resumes a pause where it was. So many nodes
// that are dead for good are taken out, even if that happens again and again. After a longer time
// without contact the replica knows nothing about the fleet.
func TestSpareOverOutages(t *testing.T) {
	t.Parallel()
	const limit, round = 8 * time.Second, 500 * time.Millisecond
	for name, tt := range map[string]struct {
		away   func(at time.Duration) bool
		reaped []time.Duration // at first, and first after each time without contact
	}{
		"none": {
			away:   func(time.Duration) bool { return false },
			reaped: []time.Duration{24 * time.Second},
		},
		"of 2 s every 20 s": {
			away: func(at time.Duration) bool { return at >= 20*time.Second && at%(20*time.Second) < 2*time.Second },
			// 8 to 19.5 s and 30 to 34.5 s are two limits; then at once whenever there was contact
			// for one.
			reaped: []time.Duration{34500 * time.Millisecond, 50 * time.Second},
		},
		"longer than the limit": {
			away:   func(at time.Duration) bool { return at >= 20*time.Second && at < 29*time.Second },
			reaped: []time.Duration{53 * time.Second},
		},
		"longer than the limit, after the pause": {
			away:   func(at time.Duration) bool { return at >= 30*time.Second && at < 39*time.Second },
			reaped: []time.Duration{24 * time.Second, 63 * time.Second},
		},
		"short ones, too close to see the fleet between": {
			away: func(at time.Duration) bool {
				return at >= 20*time.Second && at < 24*time.Second || at >= 28*time.Second && at < 32*time.Second
			},
			reaped: []time.Duration{56 * time.Second},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fleet := &timed{census: new(census), limit: limit}
			for i := range 20 {
				n := node(fmt.Sprintf("n%d", i), 1)
				fleet.nodes = append(fleet.nodes, selection.NewNode(selection.Compile(&n), 0))
			}
			for _, n := range fleet.nodes[:10] {
				fleet.silent = append(fleet.silent, cache.SilentNode{ID: n.ID(), Epoch: "e"})
			}
			rep := newRig(t, redistest.Shared(t)).unstarted("r1", func(c *replicaConfig) {
				c.nodes = func(c *cache.Cache) Nodes { fleet.Cache = c; return fleet }
			})
			c := rep.byCell[0]
			reaper := newReaper(c)
			var reaped []time.Duration
			var counted bool
			for ; fleet.now < 68*time.Second; fleet.now += round {
				if tt.away(fleet.now) {
					c.contact.lost()
					counted = false
				} else {
					c.contact.made(int64(fleet.now), int64(fleet.now), c.contactGap())
				}
				reaper.alive = nil
				reaper.runOnce()
				// Redis knows none of the nodes, which is noted for those that it was asked to take
				// out.
				if len(reaper.alive) > 0 && !counted {
					counted = true
					reaped = append(reaped, fleet.now)
				}
			}
			if !slices.Equal(reaped, tt.reaped) {
				t.Errorf("reaped at %v, expected %v", reaped, tt.reaped)
			}
			if got := testutil.ToFloat64(rep.metrics.reapingPaused.WithLabelValues("0")); got != 0 {
				t.Errorf("the gauge is %v after that", got)
			}
		})
	}
}

// No node is reaped before this replica has had contact with Redis for a heartbeat limit.
func TestContact(t *testing.T) {
	t.Parallel()
	var touch contact
	const gap = 40
	for i, tt := range []struct {
		sent, answered int64 // of a call; with both 0 it failed
		at, lasts      int64
	}{
		{0, 0, 100, 0}, // before any
		{5, 10, 20, 10},
		{30, 40, 50, 40},
		{60, 70, 100, 90},
		{0, 0, 110, 0},
		{110, 120, 130, 10},
		{149, 150, 160, 40},
		{180, 190, 200, 10}, // the call before was sent more than a gap ago
		{200, 245, 245, 0},  // this one waited
		{250, 260, 270, 10}, // and this begins anew
		{265, 270, 306, 0},  // nothing was proven of late
	} {
		if tt.sent == 0 {
			touch.lost()
		} else {
			touch.made(tt.sent, tt.answered, gap)
		}
		if got := touch.lasts(tt.at, gap); got != time.Duration(tt.lasts) {
			t.Errorf("%d: lasts %d, expected %d", i, got, tt.lasts)
		}
	}
	r := newRig(t, redistest.Shared(t))
	r.agent(node("n1", 1))
	rep := r.unstarted("r1", mortal(time.Millisecond))
	start(t, rep.cache)
	c := rep.byCell[0]
	reaper, due := newReaper(c), newDueJobs(c)
	waittest.Until(t, "the node is silent", func() bool { return len(rep.cache.Silent(time.Millisecond)) == 1 })
	reaper.runOnce()
	if n := testutil.ToFloat64(c.metrics.reaped); n != 0 {
		t.Errorf("%v nodes were reaped without any contact", n)
	}
	waittest.Until(t, "the node is reaped", func() bool {
		_ = due.handle()
		reaper.runOnce()
		return testutil.ToFloat64(c.metrics.reaped) == 1
	})
}

// Redis is away for less than the limit less an interval, while a call waits for it or fails. No
// living node loses its job, though it is silent for longer than the limit until it is heard again.
func TestShortOutage(t *testing.T) {
	t.Parallel()
	const limit, step = 8 * time.Second, 100 * time.Millisecond
	const interval = limit / 3
	for _, waits := range []bool{true, false} {
		for begin := 2 * limit; begin < 2*limit+interval; begin += step { // anywhere between two heartbeats
			fleet := &timed{census: new(census), limit: limit}
			n := node("n1", 1)
			fleet.nodes = append(fleet.nodes, selection.NewNode(selection.Compile(&n), 0))
			rep := newRig(t, redistest.Shared(t)).unstarted("r1", func(c *replicaConfig) {
				c.nodes = func(c *cache.Cache) Nodes { fleet.Cache = c; return fleet }
			})
			c := rep.byCell[0]
			reaper := newReaper(c)
			// A heartbeat that Redis does not take is late by an interval once Redis is back.
			end := begin + limit - interval - step
			heard, due, sent := time.Duration(0), interval, time.Duration(0)
			for ; fleet.now < 5*limit; fleet.now += step {
				switch away := fleet.now >= begin && fleet.now < end; {
				case away && !waits:
					c.contact.lost()
				case !away:
					c.contact.made(int64(sent), int64(fleet.now), c.contactGap())
					sent = fleet.now + step
				}
				if fleet.now >= due {
					if due += interval; fleet.now < begin || fleet.now >= end {
						heard = fleet.now
					}
				}
				fleet.silent = nil
				if fleet.now-heard > limit {
					fleet.silent = []cache.SilentNode{{ID: "n1", Epoch: "e"}}
				}
				reaper.runOnce()
				if len(reaper.alive) > 0 {
					t.Fatalf("outage at %s, waits %t: Redis was asked to take the node out at %s", begin, waits, fleet.now)
				}
			}
		}
	}
}

package cache

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// newHearingRig follows a cell in which heartbeats may be quiet.
func newHearingRig(t *testing.T, redis *redistest.Target, options ...option) *rig {
	t.Helper()
	r := newRig(t, redis, Config{RefreshInterval: never}, options...)
	r.hearing.every = time.Millisecond
	r.do("HSET", r.cell.Layout().Version(), "quiet_until", "9999999999999")
	return r.run()
}

// TestQuietNodesLive: without any event the cache knows when a quiet node was heard, by Redis' clock
// and not by the time of the read. So a silent node is noticed as soon as if it had events.
func TestQuietNodesLive(t *testing.T) {
	t.Parallel()
	redistest.Backends(t, func(t *testing.T, redis *redistest.Target) {
		t.Parallel()
		r := newHearingRig(t, redis)
		r.register(testNode("n", 1))
		r.heartbeat("n", "") // announced
		r.converges()
		events := r.counter(r.metrics.events.WithLabelValues("node_heartbeat"))
		for range 3 {
			r.heartbeat("n", "")
			r.converges() // the time of the last heartbeat, too
		}
		if n := r.counter(r.metrics.events.WithLabelValues("node_heartbeat")); n != events {
			t.Errorf("%d events of heartbeats, want %d", n, events)
		}
		if n := r.counter(r.metrics.heard); n < 3 {
			t.Errorf("%d heartbeats read, want 3 at least", n)
		}
		// The cache's clock and Redis' differ by one offset, which each call measures again.
		state, _ := r.State("n")
		node, _ := r.Node("n")
		seen, _ := node.SeenAt()
		r.sync()
		want := int64(0)
		r.inLoop(func() { want = r.localNow(state.LastHeartbeatMS) })
		if d := time.Duration(seen - want).Abs(); d > 5*time.Second {
			t.Errorf("seen %s beside the heartbeat, want the time of the heartbeat", d)
		}
	})
}

// TestQuietNodesReturn: a quiet heartbeat tells OnFree that a silent node is back, as an event does.
func TestQuietNodesReturn(t *testing.T) {
	t.Parallel()
	r := newHearingRig(t, redistest.Shared(t))
	r.register(testNode("n", 1))
	r.converges()
	told := r.told()
	node, _ := r.Node("n")
	r.heartbeat("n", "")
	r.converges()
	if ids := drained(told); len(ids) > 0 {
		t.Errorf("told %v of a node that was able all along", ids)
	}
	node.MarkSilent()
	r.heartbeat("n", "")
	if id := waittest.Receive(t, "the node's return", told); id != "n" {
		t.Errorf("told %s, want n", id)
	}
}

// inLoop calls f in the follower's loop, by way of a read, which then fails.
func (r *rig) inLoop(f func()) {
	r.t.Helper()
	done := make(chan struct{})
	once := func(int64) error {
		select {
		case <-done:
			return nil
		default:
			defer close(done)
			f()
			return errors.New("the test was in the loop")
		}
	}
	r.source.hearing.Store(&once)
	<-done
	r.source.hearing.Store(nil)
}

// TestOutdatedFiguresMend: an answer to a job or a refusal that comes after the last event of a node
// is mended, although no further event follows.
func TestOutdatedFiguresMend(t *testing.T) {
	t.Parallel()
	r := newHearingRig(t, redistest.Shared(t))
	r.register(testNode("n", 1))
	r.register(testNode("drains", 1))
	drains := cell.Heartbeat{Node: "drains", Epoch: r.epochs["drains"], Status: freeslot.StatusDraining}
	if _, err := r.cell.Heartbeat(deadline(t), drains); err != nil {
		t.Fatal(err)
	}
	r.converges()
	for _, wrong := range []cell.Refusal{
		{Node: "n", Reason: cell.RefusedFull, Used: 1},
		{Node: "n", Reason: cell.RefusedDraining},
		{Node: "n", Reason: cell.RefusedSilent},
	} {
		r.Refused(wrong)
		eventually(t, fmt.Sprintf("the node after %+v", wrong), func() bool {
			r.heartbeat("n", "")
			node, _ := r.Node("n")
			used, _ := node.Load()
			_, seen := node.SeenAt()
			return used == 0 && !node.Draining() && seen
		})
	}
	if node, _ := r.Node("drains"); !node.Draining() {
		t.Error("a node that drains takes jobs")
	}
}

// TestReadsGoOn: a read that fails, and a page that is full, lose no heartbeat.
func TestReadsGoOn(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	r := newHearingRig(t, redistest.Shared(t), logged(core))
	r.register(testNode("n", 1))
	r.converges()
	logs.TakeAll()
	fail := func(int64) error { return errors.New("no answer") }
	r.source.hearing.Store(&fail)
	failed := r.counter(r.metrics.resyncErrors)
	r.heartbeat("n", "")
	eventually(t, "a failed read", func() bool { return r.counter(r.metrics.resyncErrors) > failed+1 })
	r.source.hearing.Store(nil)
	r.converges()
	eventually(t, "the end in the log", func() bool { return logs.FilterMessage("cache.heartbeats_read_again").Len() == 1 })
	if n := logs.FilterMessage("cache.heartbeats_not_read").Len(); n != 1 {
		t.Errorf("%d lines of failed reads, want 1", n)
	}

	args := []string{"ZADD", r.cell.Layout().Heartbeats()}
	for i := range 2 * heardPage {
		args = append(args, itoa(1_000_000_000_000+i/2), "foreign-"+itoa(i))
	}
	calls, pages := r.source.hears.Load(), r.counter(r.metrics.heard)
	r.do(args...)
	r.heartbeat("n", "")
	r.inLoop(func() { r.hearing.sinceMS = 0 })
	eventually(t, "all pages", func() bool { return r.counter(r.metrics.heard) >= pages+2*heardPage })
	r.converges()
	if n := r.source.hears.Load() - calls; n < 3 {
		t.Errorf("%d calls, want 3 at least", n)
	}
}

// TestClockGoesBack: heartbeats count although Redis' clock says less than before.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	r := newHearingRig(t, redistest.Shared(t))
	r.register(testNode("n", 1))
	r.heartbeat("n", "")
	r.converges()
	r.inLoop(func() {
		r.hearing.sinceMS += time.Hour.Milliseconds()
		e, _ := r.nodes.Load("n")
		e.heartbeatMS.Store(r.hearing.sinceMS)
	})
	eventually(t, "a heartbeat after the step", func() bool {
		r.heartbeat("n", "")
		return r.diff() == ""
	})
}

// TestPermit: heartbeats may be quiet only as long as the last answer says that all replicas read
// them. A cache that knows no answer leaves it to others.
func TestPermit(t *testing.T) {
	t.Parallel()
	r := newRig(t, redistest.Shared(t), Config{RefreshInterval: never})
	r.hearing.every = time.Millisecond
	r.run()
	mark := func() string {
		text, _ := r.do("HGET", r.cell.Layout().Version(), "quiet_until").ToString()
		return text
	}
	r.do("HSET", r.cell.Layout().Version(), "quiet_until", "17")
	for range 3 {
		r.inLoop(func() {})
	}
	if got := mark(); got != "17" {
		t.Errorf("quiet until %q without an answer, want 17", got)
	}
	r.AllowQuiet(true)
	eventually(t, "the mark", func() bool { return len(mark()) == 13 })
	r.AllowQuiet(false)
	eventually(t, "the end of the mark", func() bool { return mark() == "" })

	c := New(Config{}, []Feed{{Source: noSource{}}}, zap.NewNop(), nil)
	defer c.cancel()
	c.clock.origin = time.Now().Add(-time.Hour)
	c.AllowQuiet(true)
	if got := c.quietNow(); got != cell.QuietAllowed {
		t.Errorf("%d, want it allowed", got)
	}
	c.quiet.at.Add(-int64(permitLife))
	if got := c.quietNow(); got != cell.QuietAsBefore {
		t.Errorf("%d after the permit has ended, want it left to others", got)
	}
}

// Heard implements Source.
func (s *source) Heard(ctx context.Context, since int64, limit int, quiet cell.Quiet) (cell.Heard, error) {
	s.hears.Add(1)
	if f := s.hearing.Load(); f != nil {
		if err := (*f)(since); err != nil {
			return cell.Heard{}, err
		}
	}
	return s.Cell.Heard(ctx, since, limit, quiet)
}

// TestReadsBeforeEvents: a quiet heartbeat of a node that has registered again is read before the
// events of that. They do not take the time of the heartbeat back for good.
func TestReadsBeforeEvents(t *testing.T) {
	t.Parallel()
	r := newHearingRig(t, redistest.Shared(t))
	for name, again := range map[string]func(){
		"restarted": func() {},
		"left":      func() { r.deregister("left") },
	} {
		r.register(testNode(name, 1))
		r.converges()
		r.inLoop(func() { // no event is applied meanwhile
			again()
			r.epochs[name] = cell.NewEpoch()
			r.register(testNode(name, 1))
			r.heartbeat(name, "") // announced
			read := func() cell.Heard {
				heard, err := r.cell.Heard(deadline(t), r.hearing.sinceMS, heardPage, cell.QuietAsBefore)
				if err != nil {
					t.Error(err)
				}
				return heard
			}
			for begin, now := read().NowMS, int64(0); now <= begin && !t.Failed(); {
				now = read().NowMS
			}
			r.heartbeat(name, "")
			heard := read()
			r.hear(&heard)
			r.hearing.sinceMS = heard.NowMS + 1
		})
		r.converges()
	}
}

package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/rueidis"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/testing/redistest"
)

func TestParseNodeKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string][2]string{
		"scheduler:nodes:node-1":                      {"", "node-1"},
		"scheduler:nodes:{c1}:node-1":                 {"c1", "node-1"},
		"scheduler:nodes:{}:node-1":                   {"", "node-1"},
		"scheduler:nodes:index:online":                {},
		"scheduler:nodes:index:online:{c1}":           {},
		"scheduler:nodes:{c1}:index:online":           {},
		"scheduler:nodes:{c1}:":                       {},
		"scheduler:nodes:{c1}":                        {},
		"scheduler:nodes:{c1":                         {},
		"scheduler:nodes:":                            {},
		"scheduler:nodes":                             {},
		"other:nodes:node-1":                          {},
		"scheduler:nodes:a b":                         {},
		"scheduler:nodes:" + string(make([]byte, 65)): {},
		"scheduler:nodes:" + strings.Repeat("x", 65):  {},
	} {
		tag, node, ok := parseNodeKey(trackedPrefix, key)
		if ok != (want[1] != "") || ok && [2]string{tag, node} != want {
			t.Errorf("%q: %q, %q, %v; want %q", key, tag, node, ok, want)
		}
	}
}

func FuzzParseNodeKey(f *testing.F) {
	for _, key := range []string{"", "scheduler:nodes:n", "scheduler:nodes:{c}:n", "scheduler:nodes:{}}:n", "scheduler:nodes:{"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		tag, node, ok := parseNodeKey(trackedPrefix, key)
		if plain, tagged := trackedPrefix+node, trackedPrefix+"{"+tag+"}:"+node; ok && key != tagged && (tag != "" || key != plain) {
			t.Errorf("%q is not the key of node %q with tag %q", key, node, tag)
		}
	})
}

// The watch gets every write by hand, and nothing else.
func TestTrackerHears(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	for _, id := range []string{"node-2", "node-3", "node-4"} {
		do(t, admin, "HSET", trackedPrefix+id, "v", "1")
	}
	_, w := track(t, redis.Target, "tracker")
	for _, args := range [][]string{
		{"HSET", trackedPrefix + "node-1", "v", "1"},
		{"DEL", trackedPrefix + "node-2"},
		{"EXPIRE", trackedPrefix + "node-3", "1000"},
		{"EVAL", "return redis.call('HSET', 'scheduler:nodes:node-5', 'v', 1)", "0"}, // not even declared
		{"RENAME", trackedPrefix + "node-4", trackedPrefix + "node-6"},
		{"SADD", trackedPrefix + "index:online", "node-1"},
		{"HSET", "scheduler:load:node-7", "v", "1"},
		{"DEL", trackedPrefix + "node-8"}, // which does not exist
		{"HSET", trackedPrefix + "last", "v", "1"},
	} {
		if err := do(t, admin, args...).Error(); err != nil {
			t.Fatalf("%q: %v; want no error", args, err)
		}
	}
	got := takeUntil(t, w, "last")
	slices.Sort(got)
	if want := "last node-1 node-2 node-3 node-4 node-5 node-6"; strings.Join(got, " ") != want {
		t.Errorf("told of %v, want %s", got, want)
	}
	do(t, admin, "PEXPIRE", trackedPrefix+"node-1", "1")
	takeUntil(t, w, "node-1")
	do(t, admin, "EXISTS", trackedPrefix+"node-1") // deletes what has expired, at the latest
	do(t, admin, "FLUSHALL")
	takeAll(t, w)
	if !w.Connected() {
		t.Error("a flush is no lost connection")
	}
}

// takeUntil collects what the watch returns until it returns id.
func takeUntil(t *testing.T, w *Watch, id string) (got []string) {
	t.Helper()
	for !slices.Contains(got, id) {
		receive(t, w.Changed())
		nodes, all := w.Take()
		if all {
			t.Fatal("everything, without a reason")
		}
		got = append(got, nodes...)
	}
	return got
}

// The connection is cut a hundred times at random while nodes are written: the
// copy that follows the tracker ends as the truth.
func TestTrackerLosesNothing(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	_, w := track(t, redis.Target, "tracker")
	f := follow(t, w, redis.Client(t), "")
	stop := f.write(t)
	for range 100 {
		var killed int64
		eventually(t, "a connection to cut", func() bool {
			killed, _ = do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub").AsInt64()
			return killed > 0
		})
		// Some cuts hit a connection that has just begun, some one that works.
		for range rand.N(40) {
			do(t, admin, "PING")
		}
	}
	if n := stop(); n < 100 {
		t.Errorf("only %d writes", n)
	}
	f.converges(t, "100 cuts")
	eventually(t, "the connection", w.Connected)
}

func TestTrackerOutages(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, redis *redistest.Server, w *Watch){
		"server hangs": func(t *testing.T, redis *redistest.Server, w *Watch) {
			redis.Pause()
			eventually(t, "the loss seen", func() bool { return !w.Connected() })
			redis.Resume()
		},
		"server hangs unnoticed": func(_ *testing.T, redis *redistest.Server, _ *Watch) {
			redis.Pause()
			redis.Resume()
		},
		"server restarts with its data": func(t *testing.T, redis *redistest.Server, w *Watch) {
			redis.Kill()
			eventually(t, "the loss seen", func() bool { return !w.Connected() })
			redis.Restart()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t, redistest.AppendOnly("everysec"))
			_, w := track(t, redis.Target, "tracker")
			f := follow(t, w, redis.Client(t), "")
			stop := f.write(t)
			eventually(t, "a copy", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.state) > fleet/2 })
			harm(t, redis, w)
			eventually(t, "the connection", w.Connected)
			if n := stop(); n == 0 {
				t.Error("nothing was written")
			}
			f.converges(t, name)
			// It goes on hearing, and an operator's write alone is enough.
			do(t, redis.Client(t), "HSET", trackedPrefix+"node-0", "v", "by hand")
			f.converges(t, "a write by hand")
		})
	}
}

// A restart without data is a change of everything.
func TestTrackerSeesLoss(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	_, w := track(t, redis.Target, "tracker")
	f := follow(t, w, redis.Client(t), "")
	do(t, redis.Client(t), "HSET", trackedPrefix+"node-0", "v", "1")
	f.converges(t, "a write")
	redis.Kill()
	redis.Restart()
	f.converges(t, "the loss")
	eventually(t, "an empty copy", func() bool { f.mu.Lock(); defer f.mu.Unlock(); return len(f.state) == 0 })
}

// What happens to one server concerns its cells alone.
func TestTrackerSeveralServers(t *testing.T) {
	t.Parallel()
	one, two := redistest.New(t), redistest.New(t)
	reg := prometheus.NewRegistry()
	tracker := NewTracker(TrackerConfig{
		Prefix: trackedPrefix, Open: openTracker("tracker"),
		Cells: []TrackedCell{
			{Index: 0, Tag: "c0", Server: one.Addrs()[0]},
			{Index: 1, Tag: "c1", Server: two.Addrs()[0]},
			{Index: 2, Tag: "c2", Server: one.Addrs()[0]},
		},
	}, zaptest.NewLogger(t), reg)
	start(t, tracker)
	var watch [3]*Watch
	for i := range watch {
		watch[i] = tracker.Watch(i)
		eventually(t, "the connection", watch[i].Connected)
		takeAll(t, watch[i])
	}
	if tracker.Watch(3) != nil {
		t.Error("a watch of a cell that is not there")
	}
	do(t, two.Client(t), "HSET", trackedPrefix+"{c1}:node-1", "v", "1")
	takeUntil(t, watch[1], "node-1")
	do(t, one.Client(t), "FLUSHALL")
	takeAll(t, watch[0])
	takeAll(t, watch[2])
	two.Kill()
	eventually(t, "the loss seen", func() bool { return !watch[1].Connected() })
	takeAll(t, watch[1])
	if !watch[0].Connected() || !watch[2].Connected() {
		t.Error("the other server's cells are affected")
	}
	for _, i := range []int{0, 2} {
		if nodes, all := watch[i].Take(); nodes != nil || all {
			t.Errorf("cell %d was told of %v, all %v", i, nodes, all)
		}
	}
	gauges := func(want string) func() bool {
		return func() bool {
			return fmt.Sprint(testutil.ToFloat64(tracker.metrics.servers), testutil.ToFloat64(tracker.metrics.connected)) == want
		}
	}
	eventually(t, "the figures", gauges("2 1"))
	two.Restart()
	eventually(t, "the connection", watch[1].Connected)
	eventually(t, "the figures", gauges("2 2"))
	if n := testutil.ToFloat64(tracker.metrics.invalidations); n != 1 {
		t.Errorf("%v invalidations, want 1", n)
	}
	if n := testutil.ToFloat64(tracker.metrics.resets); n < 7 {
		t.Errorf("%v resets", n)
	}
	if n, err := testutil.GatherAndCount(reg); n != 4 || err != nil {
		t.Errorf("%d series, %v", n, err)
	}
	stop(t, tracker)
	eventually(t, "the figures", gauges("0 0"))
}

// Two trackers of one server: what befalls one is nothing to the other.
func TestTrackersAreApart(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	_, first := track(t, redis.Target, "first")
	second, other := track(t, redis.Target, "second")
	stop(t, second)
	other.Take()
	do(t, admin, "HSET", trackedPrefix+"node-1", "v", "1")
	takeUntil(t, first, "node-1")
	if nodes, all := other.Take(); nodes != nil || all {
		t.Errorf("a stopped tracker is told of %v, all %v", nodes, all)
	}
	if other.Connected() || !first.Connected() {
		t.Error("stopping one is not stopping one")
	}
	_, third := track(t, redis.Target, "third")
	do(t, admin, "HSET", trackedPrefix+"node-2", "v", "1")
	takeUntil(t, first, "node-2")
	takeUntil(t, third, "node-2")
	// One connection each.
	list, err := do(t, admin, "CLIENT", "LIST").ToString()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "third"} {
		if n := strings.Count(list, " name="+name+" "); n != 1 {
			t.Errorf("%s: %d connections", name, n)
		}
	}
}

// newUntracked starts a server that cannot track, and cannot list its clients by name.
func newUntracked(t *testing.T) *redistest.Server {
	t.Helper()
	return redistest.New(t, redistest.Args("--rename-command", "CLIENT", ""))
}

// received counts the connections that the server has had.
func received(t *testing.T, admin rueidis.Client) (n int) {
	t.Helper()
	text, err := do(t, admin, "INFO", "stats").ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(text, "total_connections_received:")
	_, _ = fmt.Sscan(after, &n)
	return n
}

// The tracker asks a server that cannot track again from time to time, and logs it once.
func TestTrackerUnsupported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		interval   time.Duration
		from, upTo int // connections
	}{
		"as configured": {0, 1, 1},
		"often":         {10 * time.Millisecond, 5, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := newUntracked(t)
			admin := redis.Client(t)
			before := received(t, admin)
			core, logs := observer.New(zapcore.InfoLevel)
			tracker := NewTracker(TrackerConfig{
				Prefix: trackedPrefix, Cells: []TrackedCell{{Server: redis.Addrs()[0]}}, Open: openTracker("tracker"), UnsupportedInterval: c.interval,
			}, zap.New(core), nil)
			w := tracker.Watch(0)
			if !w.Supported() {
				t.Error("unsupported before it was tried")
			}
			start(t, tracker)
			eventually(t, "the answer", func() bool { return !w.Supported() })
			eventually(t, "the tries", func() bool { return received(t, admin)-before >= c.from })
			if n := received(t, admin) - before; n > c.upTo {
				t.Errorf("%d connections", n)
			}
			if w.Supported() || w.Connected() || logs.Len() != 1 {
				t.Errorf("supported, connected, or %d lines in the log", logs.Len())
			}
		})
	}
}

// One of two servers cannot track: the cells of the other lose nothing by it, and once
// it has been upgraded its own are tracked too.
func TestTrackerUpgrade(t *testing.T) {
	t.Parallel()
	old, one, two := newUntracked(t), redistest.New(t), redistest.New(t)
	var upgraded atomic.Bool
	open := openTracker("tracker")
	tracker := NewTracker(TrackerConfig{
		Prefix: trackedPrefix, UnsupportedInterval: 10 * time.Millisecond,
		Cells: []TrackedCell{{Index: 0, Tag: "c0", Server: "upgraded"}, {Index: 1, Tag: "c1", Server: one.Addrs()[0]}},
		Open: func(server string, on func([]rueidis.RedisMessage)) (rueidis.Client, error) {
			switch {
			case server != "upgraded":
				return open(server, on)
			case upgraded.Load():
				return open(two.Addrs()[0], on)
			}
			return open(old.Addrs()[0], on)
		},
	}, zaptest.NewLogger(t), nil)
	start(t, tracker)
	first, second := tracker.Watch(0), tracker.Watch(1)
	eventually(t, "the refusal", func() bool { return !first.Supported() })
	eventually(t, "the connection", second.Connected)
	if !second.Supported() || first.Connected() {
		t.Errorf("the other server: supported %v; this one: connected %v", second.Supported(), first.Connected())
	}
	one.Pause()
	eventually(t, "the loss seen", func() bool { return !second.Connected() })
	if !second.Supported() {
		t.Error("a lost connection counts as unsupported")
	}
	one.Resume()
	upgraded.Store(true)
	eventually(t, "the connection", first.Connected)
	if !first.Supported() {
		t.Error("unsupported and connected")
	}
	takeAll(t, first)
	do(t, two.Client(t), "HSET", trackedPrefix+"{c0}:node-1", "v", "1")
	takeUntil(t, first, "node-1")
}

// The tracker tries again for a user without the permission to track, and logs it once.
func TestTrackerRefused(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	admin := redis.Client(t)
	do(t, admin, "ACL", "SETUSER", "default", "-client|tracking")
	core, logs := observer.New(zapcore.InfoLevel)
	tracker := NewTracker(TrackerConfig{
		Prefix: trackedPrefix, Cells: []TrackedCell{{Server: redis.Addrs()[0]}}, Open: openTracker("tracker"),
	}, zap.New(core), nil)
	start(t, tracker)
	tries := func() int { return received(t, admin) }
	before := tries()
	eventually(t, "three tries", func() bool { return tries() >= before+3 })
	if w := tracker.Watch(0); !w.Supported() || logs.Len() != 1 {
		t.Errorf("supported is %v, %d lines in the log", w.Supported(), logs.Len())
	}
	do(t, admin, "ACL", "SETUSER", "default", "+client|tracking")
	eventually(t, "the connection", tracker.Watch(0).Connected)
	// Refused again on a connection that had stood: no storm of tries.
	do(t, admin, "ACL", "SETUSER", "default", "-client|tracking")
	do(t, admin, "CLIENT", "KILL", "TYPE", "pubsub")
	eventually(t, "the loss seen", func() bool { return !tracker.Watch(0).Connected() })
	before = tries()
	begin := time.Now()
	eventually(t, "three tries", func() bool { return tries() >= before+3 })
	if took := time.Since(begin); took < firstRetry {
		t.Errorf("three tries in %s", took)
	}
	do(t, admin, "ACL", "SETUSER", "default", "+client|tracking")
	eventually(t, "the connection", tracker.Watch(0).Connected)
}

func TestTrackerStop(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, redis *redistest.Server, tracker *Tracker){
		"never started": func(*testing.T, *redistest.Server, *Tracker) {},
		"just started": func(t *testing.T, _ *redistest.Server, tracker *Tracker) {
			if err := tracker.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		"server hangs": func(t *testing.T, redis *redistest.Server, tracker *Tracker) {
			if err := tracker.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the connection", tracker.Watch(0).Connected)
			redis.Pause()
		},
		"server gone": func(t *testing.T, redis *redistest.Server, tracker *Tracker) {
			redis.Kill()
			if err := tracker.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := redistest.New(t)
			tracker := NewTracker(TrackerConfig{
				Prefix: trackedPrefix, Cells: []TrackedCell{{Server: redis.Addrs()[0]}}, Open: openTracker("tracker"),
			}, zap.NewNop(), nil)
			prepare(t, redis, tracker)
			stop(t, tracker)
			stop(t, tracker)
			if err := tracker.Start(t.Context()); err != nil { // a start after the end returns no error and has no effect
				t.Error(err)
			}
			stop(t, tracker)
			if tracker.Watch(0).Connected() {
				t.Error("connected")
			}
		})
	}
}

// Stop gives up waiting with its context.
func TestTrackerStopBounded(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t)
	tracker, _ := track(t, redis.Target, "tracker")
	redis.Pause()
	defer redis.Resume()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tracker.Stop(ctx); err == nil {
		t.Error("it claims to have closed a connection to a server that hangs")
	}
}

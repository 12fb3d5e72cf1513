package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/process/version"
	"github.com/freeslot/freeslot/internal/retry"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// gauge is a collector with one figure, which a test sets.
type gauge struct {
	name  string
	value atomic.Int64
	ask   func(context.Context) error // nil is nothing
}

func (g *gauge) Type() string                   { return g.name }
func (g *gauge) Available(context.Context) bool { return true }
func (g *gauge) Cost() Cost                     { return CostLow }
func (g *gauge) Collect(ctx context.Context) (Metrics, error) {
	if g.ask != nil {
		if err := g.ask(ctx); err != nil {
			return nil, err
		}
	}
	return Metrics{"level": g.value.Load()}, nil
}

// watched is a store that notes when heartbeats begin and how many are under way. Each takes some
// time.
type watched struct {
	store

	mu       sync.Mutex
	takes    time.Duration
	begun    []time.Time
	full     []time.Time // those with figures
	inFlight int
	most     int
	beat     chan struct{}
}

func (s *watched) Heartbeat(ctx context.Context, hb cell.Heartbeat) (cell.HeartbeatReply, error) {
	s.mu.Lock()
	s.begun = append(s.begun, time.Now())
	if hb.Resources != nil {
		s.full = append(s.full, time.Now())
	}
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	takes := s.takes
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
		select {
		case s.beat <- struct{}{}:
		default:
		}
	}()
	if takes > 0 && !retry.Wait(ctx, takes) {
		return cell.HeartbeatReply{}, ctx.Err()
	}
	return s.store.Heartbeat(ctx, hb)
}

// gaps are the times between neighbours.
func gaps(at []time.Time) (out []time.Duration) {
	for i := 1; i < len(at); i++ {
		out = append(out, at[i].Sub(at[i-1]))
	}
	return out
}

// watch puts a watched store in front of the one that the worker opens.
func watch(w *Worker) *watched {
	s := &watched{beat: make(chan struct{}, 1)}
	open := w.open
	w.open = func(ctx context.Context) (store, func(context.Context) error, error) {
		inner, end, err := open(ctx)
		s.store = inner
		return s, end, err
	}
	return s
}

func watchedBubble(t *testing.T, change func(*Config), fn func(t *testing.T, w *Worker, f *fakeCell, s *watched), setup ...func(*Worker)) {
	t.Helper()
	var s *watched
	setup = append(setup, func(w *Worker) { s = watch(w) })
	bubbleWith(t, change, func(t *testing.T, w *Worker, f *fakeCell) { fn(t, w, f, s) }, setup...)
}

func (s *watched) slow(takes time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = takes
}

func (s *watched) times() (begun, full []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.begun), slices.Clone(s.full)
}

// Intervals are never longer than configured, and not all the same. Most heartbeats bring no
// figures.
func TestHeartbeatIntervals(t *testing.T) {
	watchedBubble(t, nil, func(t *testing.T, _ *Worker, _ *fakeCell, s *watched) {
		s.slow(300 * time.Millisecond) // which is part of the interval
		time.Sleep(time.Hour)          // virtual time
		begun, full := s.times()
		check := func(what string, at []time.Time, longest time.Duration) {
			seen := map[time.Duration]bool{}
			for _, gap := range gaps(at) {
				if gap > longest || gap < longest*9/10-DefaultHeartbeatInterval {
					t.Fatalf("%s after %s, expected up to %s", what, gap, longest)
				}
				seen[gap] = true
			}
			if len(seen) < len(at)/4 {
				t.Errorf("%s: %d different intervals of %d", what, len(seen), len(at))
			}
		}
		check("a heartbeat", begun, DefaultHeartbeatInterval)
		check("the figures", full[1:], DefaultMetadataInterval+time.Second/2) // a heartbeat may be under way
		if len(full) < 60 || len(full) > 68 || full[0] != begun[0] {
			t.Errorf("%d of %d heartbeats with figures in an hour", len(full), len(begun))
		}
	})
}

func TestFirstHeartbeatsOfAFleetAreSpread(t *testing.T) {
	directOnly(t, "behind a gateway the first heartbeat comes at once")
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var first []time.Duration
		var stores []*watched
		for range 60 {
			w, _ := newFakeWorker(t, func(c *Config) { c.Collectors = []Collection{{Collector: &gauge{name: "x"}}} })
			stores = append(stores, watch(w))
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer w.Stop(t.Context())
		}
		time.Sleep(DefaultHeartbeatInterval) // virtual time
		synctest.Wait()
		for _, s := range stores {
			at, _ := s.times()
			if len(at) == 0 {
				t.Fatal("a node has not beaten within its interval")
			}
			first = append(first, at[0].Sub(begun))
		}
		slices.Sort(first)
		if first[15] > DefaultHeartbeatInterval/2 || first[45] < DefaultHeartbeatInterval/2 || slices.Compact(first)[1] == first[59] {
			t.Fatalf("first heartbeats after %v", first)
		}
	})
}

// A gateway that starts, or asks all its nodes, has their heartbeats at once, and not again at once in
// each interval that follows.
func TestHeartbeatsOfAFleetPartAfterARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var workers []*Worker
		var stores []*watched
		for range 60 {
			w, _ := newFakeWorker(t, func(c *Config) { c.Collectors = []Collection{{Collector: &gauge{name: "x"}}} })
			workers, stores = append(workers, w), append(stores, watch(w))
			if err := w.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer w.Stop(t.Context())
		}
		time.Sleep(DefaultHeartbeatInterval) // virtual time
		synctest.Wait()
		asked := time.Now()
		for _, w := range workers {
			w.requestBeat()
		}
		time.Sleep(DefaultHeartbeatInterval)
		synctest.Wait()
		var next []time.Duration
		for _, s := range stores {
			at, _ := s.times()
			at = slices.DeleteFunc(at, func(at time.Time) bool { return at.Before(asked) })
			if len(at) < 2 || at[0].Sub(asked) > DefaultHeartbeatInterval/10 {
				t.Fatalf("heartbeats after a request at %v: %v, expected one at once and one within the interval", asked, at)
			}
			next = append(next, at[1].Sub(asked))
		}
		slices.Sort(next)
		if next[15] > DefaultHeartbeatInterval/2 || next[45] < DefaultHeartbeatInterval/2 {
			t.Fatalf("the next heartbeats came after %v, expected them all over the interval", next)
		}
	})
}

// That holds for any number of requests from any goroutine.
func TestOneHeartbeatAtATime(t *testing.T) {
	g := &gauge{name: "x"}
	watchedBubble(t, func(c *Config) {
		c.Collectors = []Collection{{Collector: g, Interval: 100 * time.Millisecond}}
		c.Thresholds = map[string]Threshold{"x.level": {Kind: AnyChange}}
		c.HeartbeatInterval = MinHeartbeatInterval
	}, func(t *testing.T, w *Worker, _ *fakeCell, s *watched) {
		s.slow(150 * time.Millisecond)
		for range 1000 {
			w.requestBeat()
			g.value.Add(1)
			time.Sleep(10 * time.Millisecond) // virtual time
		}
		begun, _ := s.times()
		if s.most != 1 || len(begun) < 45 {
			t.Fatalf("%d at a time, %d in all", s.most, len(begun))
		}
	})
}

func TestSignificantChangeIsToldAtOnce(t *testing.T) {
	g := &gauge{name: "x"}
	change := func(c *Config) {
		c.Collectors = []Collection{{Collector: g, Interval: 200 * time.Millisecond}}
		c.Thresholds = map[string]Threshold{"x.level": {Kind: Absolute, Value: 10}}
		c.HeartbeatInterval, c.HeartbeatLimit = 30*time.Second, time.Hour
		c.MetadataInterval = 10 * time.Minute
	}
	watchedBubble(t, change, func(t *testing.T, _ *Worker, f *fakeCell, s *watched) {
		time.Sleep(time.Minute) // virtual time
		_, before := s.times()
		g.value.Store(9)
		time.Sleep(time.Minute)
		if _, full := s.times(); len(full) != len(before) {
			t.Fatalf("%d times for a small change", len(full)-len(before))
		}
		g.value.Store(10)
		time.Sleep(time.Second)
		if _, full := s.times(); len(full) != len(before)+1 {
			t.Fatalf("sent %d times within a second of a significant change", len(full)-len(before))
		}
		f.mu.Lock()
		last := string(f.beats[len(f.beats)-1].Resources)
		f.mu.Unlock()
		if last != `{"at_ms":0,"ages_ms":{"x":0},"current_jobs":0,"run_ms":0,"max_concurrency":4,"build":"`+version.String()+`","metrics":{"x":{"level":10}}}` {
			t.Errorf("sent %s", last)
		}
		// A figure that swings is not sent more often than the floor allows.
		for i := range 300 {
			g.value.Store(int64(i % 2 * 100))
			time.Sleep(200 * time.Millisecond)
		}
		_, full := s.times()
		if n := len(full) - len(before); n < 30 || n > 62 {
			t.Errorf("a swinging figure was sent %d times in a minute", n)
		}
	})
	change = func(old func(*Config)) func(*Config) {
		return func(c *Config) { old(c); c.DisableImmediateUpdate = true }
	}(change)
	g.value.Store(0)
	watchedBubble(t, change, func(t *testing.T, _ *Worker, _ *fakeCell, s *watched) {
		time.Sleep(time.Minute) // virtual time
		before, _ := s.times()
		g.value.Store(100)
		time.Sleep(31 * time.Second)
		begun, full := s.times()
		if len(begun) == len(before) || full[len(full)-1].Before(before[len(before)-1].Add(20*time.Second)) {
			t.Errorf("sent %v in heartbeats %v, expected with the next of them", full, begun)
		}
	})
}

// A node that Redis has forgotten, or that could not reach Redis, sends its figures again: it may
// be another Redis now.
func TestFiguresAreToldAgain(t *testing.T) {
	for name, trouble := range map[string]func(f *fakeCell){
		"forgotten": func(f *fakeCell) { f.epoch = "" },
		"no answer": func(f *fakeCell) {
			lost := false
			f.onHeartbeat = func(int) error {
				if lost {
					return nil
				}
				lost = true
				return errRedisAway
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			watchedBubble(t, nil, func(t *testing.T, w *Worker, f *fakeCell, s *watched) {
				time.Sleep(2 * DefaultHeartbeatInterval) // virtual time
				_, before := s.times()
				registered := f.registered
				f.with(func() { trouble(f) })
				w.requestBeat()
				time.Sleep(DefaultHeartbeatInterval / 2)
				_, full := s.times()
				f.mu.Lock()
				defer f.mu.Unlock()
				// After a beat that was asked for, the next figures come at any time up to the interval.
				if len(full) == len(before) || f.epoch == "" || f.registered != registered+1 {
					t.Errorf("sent %d times, registered %d times; want at least once, once", len(full)-len(before), f.registered-registered)
				}
			})
		})
	}
}

// Collectors that hang, panic and fail, on real Redis: no heartbeat waits for them, and the
// figures of the others arrive.
func TestBadCollectorsDelayNoHeartbeat(t *testing.T) {
	redis := redistest.Shared(t)
	release := make(chan struct{})
	bad := []*gauge{
		{name: "hangs", ask: func(context.Context) error { <-release; return nil }},
		{name: "panics", ask: func(context.Context) error { panic("boom") }},
		{name: "fails", ask: func(context.Context) error { return errors.New("no such device") }},
	}
	good := &gauge{name: "good"}
	w, err := New(Config{
		RedisURL: redis.URL(), KeyPrefix: redis.Prefix(t), HeartbeatInterval: MinHeartbeatInterval,
		Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}, Collectors: []Collection{},
		Thresholds: map[string]Threshold{"good.level": {Kind: AnyChange}},
	})
	if err != nil {
		t.Fatal(err)
	}
	replica := newReplica(t, redis, w.cfg.KeyPrefix)
	for _, g := range bad {
		w.Collect(g)
	}
	w.Collect(good)
	s := watch(w)
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 30 { // while a collector hangs
		waittest.Receive(t, "a heartbeat", s.beat)
	}
	begun, full := s.times()
	if len(full) < 1 || testutil.ToFloat64(w.metrics.heartbeats.WithLabelValues("HEARTBEAT_ONLY")) < 20 {
		t.Errorf("%d of %d with figures", len(full), len(begun))
	}
	latest := w.figures.Latest()
	if latest["good"]["level"] != int64(0) || len(latest) != 1 {
		t.Errorf("figures %v", latest)
	}
	if took, ok := w.RedisLatency(); !ok || took <= 0 {
		t.Errorf("latency %s, %v", took, ok)
	}
	_ = replica
	if err := w.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	close(release)
}

func TestCollectPanicsOnMistakes(t *testing.T) {
	w, _ := newFakeWorker(t)
	w.Collect(&gauge{name: "a"})
	for name, call := range map[string]func(){
		"twice": func() { w.Collect(&gauge{name: "a"}) }, "nil": func() { w.Collect(nil) }, "name": func() { w.Collect(&gauge{name: "a b"}) },
		"after the end": func() { _ = w.Stop(t.Context()); w.Collect(&gauge{name: "b"}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

// TestRequestedHeartbeats: a request is served at once, and requests in quick succession share
// heartbeats.
func TestRequestedHeartbeats(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		count := func() (n int) {
			f.with(func() { n = len(f.beats) })
			return n
		}
		time.Sleep(2 * minBeatGap) // in virtual time
		before := count()
		w.requestBeat()
		synctest.Wait()
		if n := count() - before; n != 1 {
			t.Errorf("%d heartbeats at once, expected 1", n)
		}
		for range 10 {
			w.requestBeat()
			synctest.Wait()
		}
		if n := count() - before; n != 1 {
			t.Errorf("%d heartbeats within the gap, expected 1", n)
		}
		time.Sleep(minBeatGap)
		synctest.Wait()
		if n := count() - before; n != 2 {
			t.Errorf("%d heartbeats after the gap, expected 2", n)
		}
	})
}

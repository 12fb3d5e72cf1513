package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
)

func names(n freeslot.Node) (out []string) {
	for _, s := range n.Services {
		out = append(out, s.Name)
	}
	return out
}

// fleetSays waits until Redis has a profile.
func (f *fakeCell) fleetSays(t *testing.T, slots int, services ...string) {
	t.Helper()
	f.await(t, fmt.Sprintf("a profile of %d slots with %v", slots, services), func() bool {
		return f.size == slots && slices.Equal(names(f.node), services)
	})
}

func nodeOf(slots int, services ...string) freeslot.Node {
	n := freeslot.Node{ID: "node-1", MaxConcurrency: slots}
	for _, s := range services {
		n.Services = append(n.Services, freeslot.Service{Name: s})
	}
	return n
}

func says(text string) HandlerFunc { return returns(text, nil) }

func TestReconfigure(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		epoch, begun := f.epoch, time.Now()
		node := nodeOf(7, "b")
		node.Labels = map[string]string{"zone": "a"}
		if err := w.Reconfigure(t.Context(), node, map[string]HandlerFunc{"b": says("new b"), "c": says("c")}); err != nil {
			t.Fatal(err)
		}
		node.Labels["zone"] = "changed by the caller"
		if took := time.Since(begun); took > 2*minBeatGap {
			t.Errorf("took %s", took)
		}
		f.fleetSays(t, 7, "b", "c")
		if f.epoch != epoch || f.node.Labels["zone"] != "a" {
			t.Errorf("epoch %s then %s, labels %v", epoch, f.epoch, f.node.Labels)
		}
		for service, want := range map[string]string{"b": `"new b"`, "c": `"c"`} {
			if comp := f.end(t, f.assign(len(service+want), freeslot.Job{Service: service})); string(comp.Result) != want {
				t.Errorf("%s: %+v; want string(comp.Result) == %v", service, comp, want)
			}
		}
	}, handle("a", says("a")), handle("b", says("old b")))
}

func TestReconfigureChangesNothingOnAnError(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		synctest.Wait()
		registered := f.registered
		other := nodeOf(1, "a")
		other.ID = "node-2"
		for want, call := range map[string]func() error{
			`node.node_id is "node-2", expected "node-1"`: func() error { return w.Reconfigure(t.Context(), other, nil) },
			"node.max_concurrency is 0":                   func() error { return w.Reconfigure(t.Context(), nodeOf(0), nil) },
			"handlers.x is nil":                           func() error { return w.Reconfigure(t.Context(), nodeOf(1), map[string]HandlerFunc{"x": nil}) },
			"handlers":                                    func() error { return w.Reconfigure(t.Context(), nodeOf(1), map[string]HandlerFunc{"x y": echo}) },
			`service "x" is not one of the node`:          func() error { return w.SetHealthy("x", false) },
		} {
			err := call()
			if err == nil || !strings.Contains(err.Error(), want) || freeslot.CodeOf(err) != freeslot.CodeInvalidArgument {
				t.Errorf("%v, expected %s", err, want)
			}
		}
		time.Sleep(2 * DefaultHeartbeatInterval) // virtual time
		if f.registered != registered {
			t.Errorf("registered %d times", f.registered-registered)
		}
		if comp := f.end(t, f.assign(1, freeslot.Job{Service: "a"})); string(comp.Result) != `"a"` {
			t.Errorf("%+v; want string(comp.Result) == `\"a\"`", comp)
		}
	}, handle("a", says("a")))
}

func TestReconfigureBeforeStartAndAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newFakeWorker(t)
		w.Handle("a", echo)
		if err := w.Reconfigure(t.Context(), nodeOf(2, "b", "c"), map[string]HandlerFunc{"b": says("b")}); err != nil {
			t.Fatal(err)
		}
		if err := w.SetHealthy("c", false); err != nil {
			t.Fatal(err)
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.fleetSays(t, 2, "b")
		if f.registered != 1 {
			t.Errorf("registered %d times", f.registered)
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Reconfigure(t.Context(), nodeOf(1), nil); !errors.Is(err, ErrStopped) {
			t.Errorf("after the end: %v", err)
		}
	})
}

// A change during an outage of Redis arrives afterwards; only the last of several arrives, once.
func TestReconfigureWhileRedisIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.with(func() { f.away = true })
		registered := f.registered
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var calls sync.WaitGroup
		for i := 1; i <= 3; i++ {
			calls.Go(func() {
				err := w.Reconfigure(ctx, nodeOf(10*i), map[string]HandlerFunc{"a": says("new")})
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%v, expected the context's", err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		last := make(chan error)
		go func() {
			last <- w.Reconfigure(t.Context(), nodeOf(5), map[string]HandlerFunc{"a": says("newest"), "b": says("b")})
		}()
		synctest.Wait()
		f.with(func() { f.away = false })
		if err := <-last; err != nil {
			t.Fatal(err)
		}
		f.fleetSays(t, 5, "a", "b")
		time.Sleep(3 * DefaultHeartbeatInterval) // virtual time
		if f.registered != registered+1 {
			t.Errorf("registered %d times", f.registered-registered)
		}
		if comp := f.end(t, f.assign(1, freeslot.Job{Service: "a"})); string(comp.Result) != `"newest"` {
			t.Errorf("%+v; want string(comp.Result) == `\"newest\"`", comp)
		}
	}, handle("a", says("old")))
}

// A failover can lose an acknowledged change, so the profile is sent again after a broken
// connection.
func TestProfileIsToldAgainAfterAFailover(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		if err := w.Reconfigure(t.Context(), nodeOf(5), map[string]HandlerFunc{"a": echo, "b": echo}); err != nil {
			t.Fatal(err)
		}
		f.with(func() { f.away, f.node, f.size = true, nodeOf(4, "a"), 4 })
		time.Sleep(time.Minute) // virtual time
		f.with(func() { f.away = false })
		f.fleetSays(t, 5, "a", "b")
	}, handle("a", echo))
}

func TestRunningJobsKeepTheirHandler(t *testing.T) {
	release := make(chan struct{})
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		release = make(chan struct{})
		a, b := f.assign(1, freeslot.Job{Service: "stays"}), f.assign(2, freeslot.Job{Service: "leaves"})
		synctest.Wait()
		if err := w.Reconfigure(t.Context(), nodeOf(1), map[string]HandlerFunc{"stays": says("new")}); err != nil {
			t.Fatal(err)
		}
		f.fleetSays(t, 1, "stays")
		time.Sleep(time.Minute) // virtual time
		close(release)
		for _, id := range []cell.Attempt{a, b} {
			if comp := f.end(t, id); string(comp.Result) != `"old"` {
				t.Errorf("%+v, expected the old handler's result", comp)
			}
		}
		if comp := f.end(t, f.assign(3, freeslot.Job{Service: "stays"})); string(comp.Result) != `"new"` {
			t.Errorf("%+v; want string(comp.Result) == `\"new\"`", comp)
		}
	}, func(w *Worker) {
		old := func(context.Context, *Job) (any, error) { <-release; return "old", nil }
		w.Handle("stays", old)
		w.Handle("leaves", old)
	})
}

// Jobs of a removed or unhealthy service are handed back uncounted, once Redis knows that they must
// not come back here.
func TestJobsOfAServiceThatLeft(t *testing.T) {
	leave := map[string]func(w *Worker) error{
		"reconfigured": func(w *Worker) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := w.Reconfigure(ctx, nodeOf(1), map[string]HandlerFunc{"other": echo}); err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			return nil // it is in force all the same
		},
		"not healthy": func(w *Worker) error { return w.SetHealthy("s", false) },
	}
	for name, change := range leave {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			bubbleWith(t, func(c *Config) { c.Node.MaxConcurrency = 1 }, func(t *testing.T, w *Worker, f *fakeCell) {
				hold = make(chan struct{})
				early := false
				f.with(func() {
					f.onComplete = func(int) error {
						for _, comp := range f.ended {
							early = early || comp.Next == cell.HandBack && slices.Contains(names(f.node), "s")
						}
						return nil
					}
				})
				f.assign(1, freeslot.Job{Service: "other"})
				synctest.Wait()
				waits := f.assign(2, freeslot.Job{Service: "s"}) // for the slot
				synctest.Wait()
				if err := change(w); err != nil {
					t.Fatal(err)
				}
				arrives := f.assign(3, freeslot.Job{Service: "s"})
				close(hold)
				for _, id := range []cell.Attempt{waits, arrives} {
					comp := f.end(t, id)
					if comp.Next != cell.HandBack || comp.Error.Code != freeslot.JobErrorInterrupted || !strings.Contains(comp.Error.Message, "no service s any more") {
						t.Errorf("%+v, expected it to be handed back", comp)
					}
				}
				if early {
					t.Error("handed back while Redis could give the job to this node again")
				}
				if n := w.slots.InUse(); n != 0 {
					t.Errorf("%d slots in use", n)
				}
			}, handle("s", echo), handle("other", func(context.Context, *Job) (any, error) { <-hold; return nil, nil }))
		})
	}
}

func TestMaxConcurrencyUpAndDown(t *testing.T) {
	var release chan struct{}
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		release = make(chan struct{}, 100)
		running := func(want int64) {
			t.Helper()
			synctest.Wait()
			if n := w.handling.Load(); n != want {
				t.Fatalf("%d handlers run, expected %d", n, want)
			}
		}
		size := func(n int) {
			t.Helper()
			if err := w.Reconfigure(t.Context(), nodeOf(n), map[string]HandlerFunc{"s": held(release)}); err != nil {
				t.Fatal(err)
			}
			f.fleetSays(t, n, "s")
		}
		for i := range 6 { // two beyond the node's slots
			f.assign(i, freeslot.Job{Service: "s"})
		}
		running(4)
		size(5)
		running(5)
		size(2)
		running(5) // none is interrupted
		release <- struct{}{}
		running(4) // and the sixth has to wait
		release <- struct{}{}
		release <- struct{}{}
		running(2)
		release <- struct{}{}
		running(2)
		size(20)
		for i := range 18 {
			f.assign(100+i, freeslot.Job{Service: "s"})
		}
		running(20)
		for range 20 {
			release <- struct{}{}
		}
		f.await(t, "the ends", func() bool { return len(f.ended) == 24 })
		for id, comp := range f.ended {
			if comp.State != freeslot.StateSucceeded {
				t.Errorf("%v: %+v; want comp.State == freeslot.StateSucceeded", id, comp)
			}
		}
	}, func(w *Worker) {
		w.Handle("s", func(context.Context, *Job) (any, error) { <-release; return nil, nil })
	})
}

func held(release chan struct{}) HandlerFunc {
	return func(context.Context, *Job) (any, error) { <-release; return nil, nil }
}

// The slots of stuck handlers are missing from any size.
func TestMaxConcurrencyWithStuckHandlers(t *testing.T) {
	var release chan struct{}
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		release = make(chan struct{})
		fn := map[string]HandlerFunc{"stuck": held(release)}
		f.end(t, f.assign(1, freeslot.Job{Service: "stuck", ProgressTimeoutMS: 1000, Slots: 2}))
		f.fleetSays(t, 2, "stuck")
		if err := w.Reconfigure(t.Context(), nodeOf(6), fn); err != nil {
			t.Fatal(err)
		}
		f.fleetSays(t, 4, "stuck")
		if err := w.Reconfigure(t.Context(), nodeOf(2), fn); err != nil { // none is left
			t.Fatal(err)
		}
		f.await(t, "a node that drains", func() bool { return f.beats[len(f.beats)-1].Status == freeslot.StatusDraining })
		close(release)
		f.await(t, "the slots", func() bool { return f.size == 2 && f.beats[len(f.beats)-1].Status == freeslot.StatusOnline })
	}, func(w *Worker) {
		w.Handle("stuck", func(context.Context, *Job) (any, error) { <-release; return nil, nil })
	})
}

func TestSetHealthy(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		set := func(service string, healthy bool) {
			t.Helper()
			if err := w.SetHealthy(service, healthy); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		set("a", false)
		f.fleetSays(t, 4, "b")
		if took := time.Since(begun); took > 2*minBeatGap {
			t.Errorf("took %s", took)
		}
		registered := f.registered
		set("a", false) // is no change
		time.Sleep(2 * DefaultHeartbeatInterval)
		if f.registered != registered {
			t.Error("registered without a change")
		}
		set("b", false)
		f.fleetSays(t, 4) // a node without services takes no jobs, and stays
		both := map[string]HandlerFunc{"a": echo, "c": echo}
		if err := w.Reconfigure(t.Context(), nodeOf(3), both); err != nil {
			t.Fatal(err)
		}
		f.fleetSays(t, 3, "c") // a stays ill
		both["b"] = echo
		if err := w.Reconfigure(t.Context(), nodeOf(3), both); err != nil {
			t.Fatal(err)
		}
		f.fleetSays(t, 3, "b", "c") // b is a new one
		set("a", true)
		f.fleetSays(t, 3, "a", "b", "c")
		if comp := f.end(t, f.assign(1, freeslot.Job{Service: "a"})); comp.State != freeslot.StateSucceeded {
			t.Errorf("%+v; want comp.State == freeslot.StateSucceeded", comp)
		}
	}, handle("a", echo), handle("b", echo))
}

// A new unhealthy service is never sent as healthy; an old one keeps its health.
func TestReconfigureWithServicesThatAreNotHealthy(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.fleetSays(t, 4, "a")
		registered := f.registered
		both := map[string]HandlerFunc{"a": echo, "b": echo}
		if err := w.Reconfigure(t.Context(), nodeOf(3, "b"), both, "a", "b"); err != nil {
			t.Fatal(err)
		}
		if f.registered != registered+1 {
			t.Errorf("sent %d times", f.registered-registered)
		}
		f.fleetSays(t, 3, "a")
		if comp := f.end(t, f.assign(1, freeslot.Job{Service: "b"})); comp.Next != cell.HandBack {
			t.Errorf("%+v, expected it to be handed back", comp)
		}
		if err := w.SetHealthy("b", true); err != nil {
			t.Fatal(err)
		}
		f.fleetSays(t, 3, "b", "a")
		err := w.Reconfigure(t.Context(), nodeOf(2), both, "c")
		if err == nil || !strings.Contains(err.Error(), `unhealthy has "c", which is no service of the node`) {
			t.Errorf("%v, expected c to be refused", err)
		}
		f.fleetSays(t, 3, "b", "a")
	}, handle("a", echo))
}

// A service that is still in the profile but has no handler any more is not removed. Its jobs fail,
// like those of a service that never had a handler, and do not come back for ever.
func TestServiceThatLosesItsHandler(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		if err := w.Reconfigure(t.Context(), nodeOf(4, "a"), nil); err != nil {
			t.Fatal(err)
		}
		comp := f.end(t, f.assign(1, freeslot.Job{Service: "a"}))
		if comp.Next != cell.Never || comp.Error == nil || comp.Error.Code != freeslot.JobErrorNoHandler {
			t.Errorf("%+v, expected %s", comp, freeslot.JobErrorNoHandler)
		}
	}, handle("a", echo))
}

// The check of a service logs its changes. So a service that comes and goes writes no line to the
// worker's log, and the registration only logs news.
func TestQuietAboutServicesThatComeAndGo(t *testing.T) {
	core, logs := observer.New(zapcore.InfoLevel)
	bubbleWith(t, func(c *Config) { c.Logger = zap.New(core) }, func(t *testing.T, w *Worker, f *fakeCell) {
		f.fleetSays(t, 4, "a")
		lines := slices.DeleteFunc(logs.TakeAll(), func(e observer.LoggedEntry) bool { return strings.HasPrefix(e.Message, "gateway.") })
		if len(lines) != 1 || lines[0].Message != "node.registered" {
			t.Fatalf("%+v, expected node.registered alone", lines)
		}
		for range 10 {
			for _, healthy := range []bool{false, true} {
				if err := w.SetHealthy("a", healthy); err != nil {
					t.Fatal(err)
				}
				f.await(t, "the profile", func() bool { return len(f.node.Services) == 1 == healthy })
			}
		}
		if lines := logs.TakeAll(); len(lines) != 0 {
			t.Errorf("%d lines, the first is %+v", len(lines), lines[0])
		}
		f.with(func() { f.epoch = "" })
		f.await(t, "the node", func() bool { return f.epoch != "" })
		synctest.Wait()
		if logs.FilterMessage("node.registered").Len() != 1 {
			t.Errorf("%+v, expected a node that was forgotten to say that it is back", logs.All())
		}
	}, handle("a", echo))
}

// A call that waits for a change returns when the worker ends.
func TestReconfigureWhileStopping(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.with(func() { f.away = true })
		ended := make(chan error)
		go func() { ended <- w.Reconfigure(t.Context(), nodeOf(2), nil) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = w.Stop(ctx)
		if err := <-ended; !errors.Is(err, ErrStopped) {
			t.Errorf("%v, expected ErrStopped", err)
		}
	})
}

package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/retry"
	"github.com/freeslot/freeslot/internal/script"
)

// bubble runs a test in virtual time with a started worker.
func bubble(t *testing.T, fn func(t *testing.T, w *Worker, f *fakeCell), setup ...func(*Worker)) {
	t.Helper()
	bubbleWith(t, nil, fn, setup...)
}

func bubbleWith(t *testing.T, change func(*Config), fn func(t *testing.T, w *Worker, f *fakeCell), setup ...func(*Worker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var changes []func(*Config)
		if change != nil {
			changes = append(changes, change)
		}
		w, f := newFakeWorker(t, changes...)
		for _, s := range setup {
			s(w)
		}
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = w.Stop(ctx)
			<-w.Done()
			if !f.closed {
				t.Error("the store was not closed")
			}
		}()
		fn(t, w, f)
	})
}

func handle(service string, fn HandlerFunc) func(*Worker) {
	return func(w *Worker) { w.Handle(service, fn) }
}

func echo(_ context.Context, job *Job) (any, error) { return job.Payload, nil }

// untilCancelled is a handler that obeys its context.
func untilCancelled(ctx context.Context, _ *Job) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestOutcomes(t *testing.T) {
	coded := &freeslot.JobError{Code: "voice_missing", Message: "no voice for tlh"}
	for name, test := range map[string]struct {
		fn     HandlerFunc
		state  freeslot.State
		result string
		code   string
		says   string
	}{
		"raw":              {fn: echo, state: freeslot.StateSucceeded, result: `{"n":1}`},
		"value":            {fn: returns(map[string]int{"a": 1}, nil), state: freeslot.StateSucceeded, result: `{"a":1}`},
		"nil":              {fn: returns(nil, nil), state: freeslot.StateSucceeded, result: `null`},
		"invalid raw":      {fn: returns(json.RawMessage(`{`), nil), code: freeslot.JobErrorHandler, says: "not valid JSON in UTF-8"},
		"raw not UTF-8":    {fn: returns(json.RawMessage("\"\xff\""), nil), code: freeslot.JobErrorHandler, says: "not valid JSON in UTF-8"},
		"inner not UTF-8":  {fn: returns(map[string]any{"a": json.RawMessage("\"\xff\"")}, nil), code: freeslot.JobErrorHandler, says: "not valid JSON in UTF-8"},
		"string not UTF-8": {fn: returns("\xff", nil), state: freeslot.StateSucceeded, result: `"\ufffd"`},
		"unencodable":      {fn: returns(func() {}, nil), code: freeslot.JobErrorHandler, says: "cannot be encoded"},
		"too large":        {fn: returns(strings.Repeat("x", DefaultMaxResultBytes), nil), code: freeslot.JobErrorResultTooLarge, says: "1048578 bytes"},
		"error":            {fn: returns(nil, errors.New("out of paper")), code: freeslot.JobErrorHandler, says: "out of paper"},
		"coded error":      {fn: returns(nil, fmt.Errorf("tts: %w", coded)), code: "voice_missing", says: "no voice"},
		"unusable code":    {fn: returns(nil, &freeslot.JobError{Code: "no way", Message: "x"}), code: freeslot.JobErrorHandler},
		"nil coded error":  {fn: returns(nil, fmt.Errorf("%w", (*nilError)(nil))), code: freeslot.JobErrorHandler},
		"long error":       {fn: returns(nil, errors.New(strings.Repeat("ü", maxErrorBytes))), code: freeslot.JobErrorHandler, says: "…"},
		"panic":            {fn: func(context.Context, *Job) (any, error) { panic("boom") }, code: freeslot.JobErrorPanic, says: "boom"},
		"panic in result":  {fn: returns(panics{}, nil), code: freeslot.JobErrorPanic, says: "in MarshalJSON"},
		"goexit":           {fn: func(context.Context, *Job) (any, error) { runtime.Goexit(); return nil, nil }, code: freeslot.JobErrorPanic, says: "ended its goroutine"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
				comp := f.end(t, f.assign(1, freeslot.Job{Service: "s", Payload: json.RawMessage(`{"n":1}`)}))
				if test.state == "" {
					test.state = freeslot.StateFailed
				}
				if comp.State != test.state || string(comp.Result) != test.result {
					t.Fatalf("%s with %s, expected %s with %s", comp.State, comp.Result, test.state, test.result)
				}
				if comp.Next != cell.Never || comp.RetryDelay != 0 {
					t.Fatalf("tried again (%d) after %s, expected never", comp.Next, comp.RetryDelay)
				}
				if test.code == "" {
					return
				}
				if comp.Error.Code != test.code || !strings.Contains(comp.Error.Message, test.says) || len(comp.Error.Message) > maxErrorBytes+4 {
					t.Fatalf("error %q, expected code %s with %q", comp.Error, test.code, test.says)
				}
			}, handle("s", test.fn))
		})
	}
}

func returns(result any, err error) HandlerFunc {
	return func(context.Context, *Job) (any, error) { return result, err }
}

type nilError struct{}

func (*nilError) Error() string { return "nil" }

type panics struct{}

func (panics) MarshalJSON() ([]byte, error) { panic("in MarshalJSON") }

func TestUnknownServiceFails(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		if comp := f.end(t, f.assign(1, freeslot.Job{Service: "other"})); comp.Error == nil || comp.Error.Code != freeslot.JobErrorNoHandler {
			t.Fatalf("%+v, expected no_handler", comp)
		}
	})
}

func TestHandlerSeesTheJob(t *testing.T) {
	var got Job
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		f.end(t, f.assign(7, freeslot.Job{Service: "s", Payload: json.RawMessage(`1`), Slots: 3, Requirement: freeslot.Requirement{TargetLanguage: "de"}}))
		if got.ID != id(7).Job || got.Attempt != 1 || got.Tenant != "default" || got.Slots != 3 || got.Requirement.TargetLanguage != "de" || string(got.Payload) != "1" {
			t.Fatalf("got %+v", got)
		}
	}, handle("s", func(_ context.Context, job *Job) (any, error) { got = *job; return nil, nil }))
}

func TestHandleAddsTheService(t *testing.T) {
	services := []freeslot.Service{{Name: "b", Version: "2"}}
	w, _ := newFakeWorker(t, func(c *Config) { c.Node.Services = services })
	w.Handle("a", echo)
	w.Handle("b", echo)
	if got := w.profile.node.Services; len(got) != 2 || got[0] != services[0] || got[1].Name != "a" {
		t.Fatalf("services %v", got)
	}
	for name, call := range map[string]func(){
		"twice": func() { w.Handle("a", echo) }, "nil": func() { w.Handle("c", nil) }, "name": func() { w.Handle("c d", echo) },
		"after the end": func() { _ = w.Stop(t.Context()); w.Handle("d", echo) },
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

func TestLargeJobIsReadFromItsRecord(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		tries := 0
		f.with(func() {
			f.onSpec = func() error {
				if tries++; tries < 3 {
					return errRedisAway
				}
				return nil
			}
			f.owned[id(1)] = false
			f.specs[id(1).Job] = &freeslot.Job{Service: "s", Payload: json.RawMessage(`"large"`)}
			f.add(cell.Dispatch{Attempt: id(1)})
		})
		if comp := f.end(t, id(1)); string(comp.Result) != `"large"` {
			t.Fatalf("%+v; want string(comp.Result) == `\"large\"`", comp)
		}
	}, handle("s", echo))
}

// An entry with an invalid job id is dropped: another try would not help.
func TestBadJobIDIsDropped(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		reads, named := 0, false
		f.with(func() {
			f.onSpec = func() error {
				reads++
				return &freeslot.Error{Code: freeslot.CodeInvalidArgument, Field: "job_id", Message: "job_id is not an id"}
			}
			f.owned[id(1)] = false
			f.add(cell.Dispatch{Attempt: id(1)})
		})
		f.await(t, "a read of the job", func() bool { return reads > 0 })
		f.with(func() { f.beats = nil })
		f.await(t, "a heartbeat that does not name the attempt", func() bool {
			n := len(f.beats)
			named = n > 0 && len(f.beats[n-1].Running) > 0
			return n > 0 && !named
		})
	}, handle("s", echo))
}

func TestHeartbeatStartsWhatTheStreamLost(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		f.with(func() { f.deaf = true })
		begun := time.Now()
		f.end(t, f.assign(1, freeslot.Job{Service: "s"}))
		if d := time.Since(begun); d > DefaultHeartbeatInterval+time.Second {
			t.Fatalf("took %s, expected about one heartbeat", d)
		}
	}, handle("s", echo))
}

func TestHeartbeatsAreSpacedAndNameWhatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		time.Sleep(30*DefaultHeartbeatInterval + DefaultHeartbeatInterval/2) // virtual time
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := len(f.beats); n < 30 || n > 34 { // intervals are up to a tenth shorter, and never longer
			t.Fatalf("%d heartbeats in 30.5 intervals", n)
		}
		named := 0 // the position is sent once
		for _, b := range f.beats {
			if b.Read != "" {
				named++
			}
		}
		if named != 1 && !throughGateway { // whose session knows the position
			t.Errorf("%d heartbeats name the position, expected 1", named)
		}
		last := f.beats[len(f.beats)-1]
		if len(last.Running) != 1 || last.Running[0] != a || last.Status != freeslot.StatusOnline || last.Read != "" && !throughGateway {
			t.Fatalf("heartbeat %+v", last)
		}
		told := last // is a heartbeat alone, most likely
		for _, b := range f.beats {
			if len(b.Resources) > 0 {
				told = b
			}
		}
		var r collector.Resources
		if err := freeslot.DecodeStrict("resources", told.Resources, &r); err != nil || r.CurrentJobs != 1 || r.MaxConcurrency != 4 {
			t.Fatalf("resources %s: %v", last.Resources, err)
		}
	}, handle("s", untilCancelled))
}

func TestFirstHeartbeatIsJittered(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := jitter(time.Second)
		if d <= 0 || d > time.Second {
			t.Fatalf("jitter %s, expected within the interval", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Fatalf("%d different values of 100", len(seen))
	}
}

func TestUnacknowledgedEndIsNamedAndRepeated(t *testing.T) {
	var calls atomic.Int32
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.with(func() {
			f.onComplete = func(n int) error {
				if n <= 3 {
					return errRedisAway // applied, and the answer lost
				}
				return nil
			}
		})
		a := f.assign(1, freeslot.Job{Service: "s"})
		f.await(t, "the acknowledgement", func() bool { return f.completes == 4 })
		f.mu.Lock()
		named, repeats := false, f.repeats
		for _, hb := range f.beats {
			named = named || len(hb.Running) == 1 && hb.Running[0] == a
		}
		f.mu.Unlock()
		if repeats != 3 || !named || calls.Load() != 1 {
			t.Fatalf("repeated %d times, named %v, handler called %d times", repeats, named, calls.Load())
		}
		if got := testutil.ToFloat64(w.metrics.completionRetries); got != 3 {
			t.Fatalf("%v retries counted", got)
		}
	}, handle("s", func(context.Context, *Job) (any, error) { calls.Add(1); return 1, nil }))
}

func TestLostReplyMakesAHeartbeatAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		f.with(func() {
			f.onComplete = func(n int) error {
				if n == 1 {
					return errRedisAway
				}
				return nil
			}
		})
		synctest.Wait()
		before := len(f.beats)
		begun := time.Now()
		f.assign(1, freeslot.Job{Service: "s"})
		f.await(t, "a heartbeat", func() bool { return len(f.beats) > before })
		if d := time.Since(begun); d > 200*time.Millisecond {
			t.Fatalf("the heartbeat came after %s", d)
		}
	}, handle("s", echo))
}

func TestCancel(t *testing.T) {
	t.Run("while running", func(t *testing.T) {
		bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
			a := f.assign(1, freeslot.Job{Service: "s"})
			synctest.Wait()
			f.cancel(a)
			if comp := f.end(t, a); comp.State != freeslot.StateCancelled || comp.Error != nil {
				t.Fatalf("%+v, expected cancelled", comp)
			}
		}, handle("s", func(ctx context.Context, _ *Job) (any, error) {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}))
	})
	t.Run("a result wins", func(t *testing.T) {
		bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
			a := f.assign(1, freeslot.Job{Service: "s"})
			synctest.Wait()
			f.cancel(a)
			if comp := f.end(t, a); comp.State != freeslot.StateSucceeded {
				t.Fatalf("%+v, expected succeeded", comp)
			}
		}, handle("s", func(ctx context.Context, _ *Job) (any, error) { <-ctx.Done(); return "done", nil }))
	})
	t.Run("before the start", func(t *testing.T) {
		bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
			synctest.Wait()                  // else a heartbeat may come between the two
			f.with(func() { f.deaf = true }) // start and cancel come in one reply
			f.assign(1, freeslot.Job{Service: "s"})
			f.cancel(id(1))
			if comp := f.end(t, id(1)); comp.State != freeslot.StateCancelled {
				t.Fatalf("%+v, expected cancelled", comp)
			}
		}, handle("s", func(context.Context, *Job) (any, error) { t.Error("the handler was called"); return nil, nil }))
	})
	t.Run("while waiting for slots", func(t *testing.T) {
		bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
			f.assign(1, freeslot.Job{Service: "s", Slots: 4})
			synctest.Wait()
			a := f.assign(2, freeslot.Job{Service: "s"})
			synctest.Wait()
			f.cancel(a)
			if comp := f.end(t, a); comp.State != freeslot.StateCancelled {
				t.Fatalf("%+v, expected cancelled", comp)
			}
		}, handle("s", untilCancelled))
	})
}

// loaded is the stored error of a handler; nil before.
func loaded(v *atomic.Value) error {
	err, _ := v.Load().(error)
	return err
}

func TestStopDropsWhatTheNodeDoesNotOwn(t *testing.T) {
	var cause atomic.Value
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.disown(a)
		f.await(t, "the handler's end", func() bool { return cause.Load() != nil })
		synctest.Wait()
		if !errors.Is(loaded(&cause), ErrNotOwned) || f.completes != 0 {
			t.Fatalf("cause %v, %d completions", cause.Load(), f.completes)
		}
		if got := testutil.ToFloat64(w.metrics.jobs.WithLabelValues("s", outcomeDropped)); got != 1 {
			t.Fatalf("%v dropped jobs counted", got)
		}
	}, handle("s", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		cause.Store(context.Cause(ctx))
		return "too late", nil
	}))
}

func TestRunningHandlersNeverExceedTheSlots(t *testing.T) {
	var now atomic.Int64
	var mu sync.Mutex
	var peak int64
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		for n := range 100 { // more than a script would ever grant: beyond twice the slots they are turned away
			f.assign(n, freeslot.Job{Service: "s"})
		}
		f.await(t, "all ends", func() bool { return len(f.ended) == 100 })
		mu.Lock()
		defer mu.Unlock()
		if peak != 4 || f.repeats != 0 {
			t.Fatalf("%d handlers at a time, %d repeated completions", peak, f.repeats)
		}
	}, handle("s", func(context.Context, *Job) (any, error) {
		n := now.Add(1)
		defer now.Add(-1)
		mu.Lock()
		peak = max(peak, n)
		mu.Unlock()
		time.Sleep(time.Millisecond) // virtual time
		return nil, nil
	}))
}

func TestRedisAwayForLongerThanTheLimit(t *testing.T) {
	var release chan struct{}
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		release = make(chan struct{})
		kept, lost := f.assign(1, freeslot.Job{Service: "kept"}), f.assign(2, freeslot.Job{Service: "lost"})
		synctest.Wait()
		f.with(func() { f.away = true })
		close(release)
		time.Sleep(time.Minute) // virtual time
		f.with(func() { f.away = false; delete(f.owned, lost) })
		back := time.Now()
		if comp := f.end(t, kept); comp.State != freeslot.StateSucceeded {
			t.Fatalf("%+v, expected the result kept", comp)
		}
		next := f.assign(3, freeslot.Job{Service: "kept"})
		f.end(t, next)
		if d := time.Since(back); d > 2*retry.Longest {
			t.Fatalf("%s until things went on", d)
		}
		if _, ok := f.ended[lost]; ok {
			t.Fatal("a job that was given away was reported")
		}
	}, handle("kept", func(context.Context, *Job) (any, error) { <-release; return 1, nil }), handle("lost", untilCancelled))
}

func TestUnknownNodeRegistersAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		old := f.assign(1, freeslot.Job{Service: "wait"})
		synctest.Wait()
		f.with(func() { f.epoch = ""; clear(f.owned); f.stream = nil })
		f.await(t, "a second registration", func() bool { return f.registered == 2 && f.epoch == w.epoch })
		beats := len(f.beats)
		f.await(t, "the next heartbeat", func() bool { return len(f.beats) > beats })
		synctest.Wait()
		f.end(t, f.assign(2, freeslot.Job{Service: "s"}))
		if _, ok := f.ended[old]; ok || w.handling.Load() != 0 {
			t.Fatal("a job that was lost goes on")
		}
	}, handle("s", echo), handle("wait", untilCancelled))
}

// A draining node that Redis does not know any more stays away, and lets its jobs end. Redis
// decides whether they still count.
func TestUnknownNodeThatDrainsStaysAway(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.assign(1, freeslot.Job{Service: "s"})
		lost := f.assign(2, freeslot.Job{Service: "s"})
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- w.Stop(context.Background()) }()
		synctest.Wait()
		f.with(func() { f.epoch, f.stream = "", nil; delete(f.owned, lost) })
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if _, ok := f.ended[lost]; ok || f.registered != 1 || f.completes != 2 {
			t.Fatalf("registered %d times, %d completions", f.registered, f.completes)
		}
	}, handle("s", func(context.Context, *Job) (any, error) {
		time.Sleep(10 * time.Second) // virtual time
		return 1, nil
	}))
}

func TestSupersededStopsEverything(t *testing.T) {
	var cause atomic.Value
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.with(func() { f.epoch = "another" })
		<-w.Done()
		if !errors.Is(w.Err(), ErrSuperseded) || !errors.Is(loaded(&cause), ErrSuperseded) {
			t.Fatalf("err %v, cause %v", w.Err(), cause.Load())
		}
		if _, ok := f.ended[a]; ok || f.completes != 0 || f.epoch != "another" {
			t.Fatal("touched a node that belongs to another process")
		}
	}, handle("s", func(ctx context.Context, _ *Job) (any, error) {
		<-ctx.Done()
		cause.Store(context.Cause(ctx))
		return nil, ctx.Err()
	}))
}

func TestRefusedResultFailsTheJob(t *testing.T) {
	bubble(t, func(t *testing.T, _ *Worker, f *fakeCell) {
		f.with(func() {
			f.onComplete = func(n int) error {
				if n == 1 {
					f.owned[id(1)] = false
					delete(f.ended, id(1))
					return &freeslot.Error{Code: freeslot.CodePayloadTooLarge, Message: "too much"}
				}
				return nil
			}
		})
		f.assign(1, freeslot.Job{Service: "s"})
		f.await(t, "a second completion", func() bool { return f.completes == 2 })
		if comp := f.end(t, id(1)); comp.State != freeslot.StateFailed || !strings.Contains(comp.Error.Message, "too much") {
			t.Fatalf(`%+v; want comp.State == freeslot.StateFailed, strings.Contains(comp.Error.Message, "too much")`, comp)
		}
	}, handle("s", echo))
}

func TestStopDrains(t *testing.T) {
	bubbleWith(t, nil, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s", Slots: 4})
		synctest.Wait()
		waiting := f.assign(2, freeslot.Job{Service: "s"})
		synctest.Wait()
		begun := time.Now()
		stopped := make(chan error, 1)
		go func() { stopped <- w.Stop(context.Background()) }()
		f.await(t, "a draining heartbeat", func() bool { return f.beats != nil && f.beats[len(f.beats)-1].Status == freeslot.StatusDraining })
		if d := time.Since(begun); d > 2*minBeatGap {
			t.Fatalf("the fleet learns of it after %s", d)
		}
		late := f.assign(3, freeslot.Job{Service: "s"})
		for _, a := range []cell.Attempt{waiting, late} {
			wantHandedBack(t, f.end(t, a))
		}
		if comp := f.end(t, a); comp.State != freeslot.StateSucceeded {
			t.Fatalf("%+v, expected the running job to end", comp)
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		if f.epoch != "" || len(f.left) != 0 || f.rash != 0 {
			t.Fatalf("epoch %q, left %v, %d handed back before the fleet knew", f.epoch, f.left, f.rash)
		}
	}, handle("s", func(context.Context, *Job) (any, error) {
		time.Sleep(20 * time.Second) // virtual time
		return 1, nil
	}))
}

func TestStopInterruptsAfterTheTimeout(t *testing.T) {
	bubbleWith(t, func(c *Config) { c.StopTimeout = 10 * time.Second }, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		begun := time.Now()
		if err := w.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d != 10*time.Second {
			t.Fatalf("stopped after %s", d)
		}
		wantHandedBack(t, f.ended[a])
	}, handle("s", untilCancelled))
}

func TestStopGivesUpOnAStuckHandler(t *testing.T) {
	var stuck chan struct{}
	bubbleWith(t, func(c *Config) { c.StopTimeout = time.Second; c.InterruptGrace = 2 * time.Second }, func(t *testing.T, w *Worker, f *fakeCell) {
		stuck = make(chan struct{})
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		begun := time.Now()
		err := w.Stop(context.Background())
		if err == nil || !strings.Contains(err.Error(), "1 handlers ignore") {
			t.Fatalf("error %v, expected the stuck handler named", err)
		}
		if d := time.Since(begun); d > 4*time.Second {
			t.Fatalf("stopped after %s", d)
		}
		wantHandedBack(t, f.ended[a])
		close(stuck)
	}, handle("s", func(context.Context, *Job) (any, error) { <-stuck; return nil, nil }))
}

func TestStopWithAnEndedContextInterruptsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		a := f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		begun := time.Now()
		if err := w.Stop(ctx); err != nil || time.Since(begun) > time.Second {
			t.Fatalf("stopped after %s: %v", time.Since(begun), err)
		}
		wantHandedBack(t, f.ended[a])
		if f.rash != 0 {
			t.Fatal("handed back before Redis knew that the node drains")
		}
	}, handle("s", untilCancelled))
}

func TestStopWithoutRedisEnds(t *testing.T) {
	bubble(t, func(t *testing.T, w *Worker, f *fakeCell) {
		f.assign(1, freeslot.Job{Service: "s"})
		synctest.Wait()
		f.with(func() { f.away = true })
		begun := time.Now()
		if err := w.Stop(context.Background()); !isAway(err) {
			t.Fatalf("error %v, expected that the node could not be deregistered", err)
		}
		if d := time.Since(begun); d > DefaultStopTimeout+DefaultInterruptGrace+reportTimeout {
			t.Fatalf("stopped after %s", d)
		}
	}, handle("s", untilCancelled))
}

func TestLifecycle(t *testing.T) {
	t.Run("never started", func(t *testing.T) {
		w, f := newFakeWorker(t)
		if err := errors.Join(w.Stop(t.Context()), w.Stop(t.Context()), w.Err()); err != nil {
			t.Fatal(err)
		}
		<-w.Done()
		if err := w.Start(t.Context()); !errors.Is(err, ErrStopped) || f.registered != 0 {
			t.Fatalf("start after stop: %v", err)
		}
	})
	t.Run("failed start", func(t *testing.T) {
		w, f := newFakeWorker(t)
		f.away = true
		if err := w.Start(t.Context()); !isAway(err) || !f.closed {
			t.Fatalf("start: %v, store closed: %v", err, f.closed)
		}
		<-w.Done()
		if err := w.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("run", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, _ := newFakeWorker(t)
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- w.Run(ctx) }()
			synctest.Wait()
			if err := w.Start(ctx); !errors.Is(err, ErrStopped) {
				t.Fatalf("second start: %v", err)
			}
			cancel()
			if err := <-ran; err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("run until superseded", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w, f := newFakeWorker(t)
			ran := make(chan error, 1)
			go func() { ran <- w.Run(t.Context()) }()
			synctest.Wait()
			f.with(func() { f.epoch = "another" })
			if err := <-ran; !errors.Is(err, ErrSuperseded) {
				t.Fatal(err)
			}
		})
	})
}

func TestStartStopStress(t *testing.T) {
	for round := range 30 {
		w, f := newFakeWorker(t, func(c *Config) { c.HeartbeatInterval = MinHeartbeatInterval })
		w.Handle("s", func(ctx context.Context, job *Job) (any, error) {
			if len(job.Payload) == 0 {
				return untilCancelled(ctx, job)
			}
			return 1, nil
		})
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Start(t.Context()) })
		wg.Go(func() {
			for n := range 20 {
				job := freeslot.Job{Service: "s"}
				if n%2 == 0 {
					job.Payload = json.RawMessage(`1`)
				}
				a := f.assign(n, job)
				if n%3 == 0 {
					f.cancel(a)
				}
			}
		})
		for i := range 3 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				if (round+i)%2 == 0 {
					cancel()
				} else {
					time.AfterFunc(time.Duration(round)*time.Millisecond/4, cancel)
				}
				_ = w.Stop(ctx)
				cancel()
			})
		}
		wg.Wait()
		<-w.Done()
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	bubbleWith(t, func(c *Config) { c.Registerer = reg }, func(t *testing.T, _ *Worker, f *fakeCell) {
		f.end(t, f.assign(1, freeslot.Job{Service: "s"}))
		f.end(t, f.assign(2, freeslot.Job{Service: "nobody's"}))
		f.await(t, "heartbeats", func() bool { return len(f.beats) > 1 })
		synctest.Wait()
		err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP freeslot_worker_jobs_total Attempts that ended, by service and outcome.
# TYPE freeslot_worker_jobs_total counter
freeslot_worker_jobs_total{node="node-1",outcome="failed",service="other"} 1
freeslot_worker_jobs_total{node="node-1",outcome="succeeded",service="s"} 1
# HELP freeslot_worker_jobs_running Handlers that run, those that ignore a cancelled context included.
# TYPE freeslot_worker_jobs_running gauge
freeslot_worker_jobs_running{node="node-1"} 0
`), "freeslot_worker_jobs_total", "freeslot_worker_jobs_running")
		if err != nil {
			t.Fatal(err)
		}
		if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
			t.Fatalf("%v %v; want no error, len(problems) <= 0", problems, err)
		}
	}, handle("s", echo))
	if _, err := New(Config{RedisURL: "redis://x", Node: freeslot.Node{ID: "node-1", MaxConcurrency: 1}, Registerer: reg}); err == nil {
		t.Fatal("two workers of one node registered the same metrics")
	}
}

func TestSpanContinuesTheSubmittersTrace(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	var inside trace.SpanContext
	bubbleWith(t, func(c *Config) { c.TracerProvider = provider }, func(t *testing.T, _ *Worker, f *fakeCell) {
		f.end(t, f.assign(1, freeslot.Job{Service: "s", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}))
		f.end(t, f.assign(2, freeslot.Job{Service: "s", TraceParent: "nonsense"}))
		synctest.Wait()
		got := spans.GetSpans()
		if len(got) != 2 {
			t.Fatalf("%d spans", len(got))
		}
		s := got[0]
		if s.Name != "run s" || s.SpanKind != trace.SpanKindConsumer || s.Parent.SpanID().String() != "b7ad6b7169203331" ||
			s.SpanContext.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Fatalf("span %+v", s)
		}
		if got[1].Parent.IsValid() || inside.TraceID() != got[1].SpanContext.TraceID() {
			t.Fatal("expected a new trace, visible to the handler")
		}
	}, handle("s", func(ctx context.Context, _ *Job) (any, error) {
		inside = trace.SpanContextFromContext(ctx)
		return nil, nil
	}))
}

// TestStartThatIsNotRegistered: if nothing was registered, or another process has the node, there
// is nothing to take out again. The error is one line with the reason.
func TestStartThatIsNotRegistered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		epoch cell.Epoch // that has the node then
		asked bool       // whether it is taken out again
	}{
		"no scripts":    {fmt.Errorf("%w: %w", script.ErrMissing, cell.ErrNotSent), "", false},
		"maybe no more": {fmt.Errorf("%w: %w", script.ErrMissing, context.DeadlineExceeded), "", true},
		"predecessor's": {errors.New("connection reset"), "other", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := newFakeWorker(t)
			f.onRegister = func() error { f.epoch = test.epoch; return test.err }
			counted := &deregistrations{store: f}
			w.open = func(context.Context) (store, func(context.Context) error, error) {
				return counted, func(context.Context) error { return nil }, nil
			}
			err := w.Start(t.Context())
			if want := "register node node-1: " + test.err.Error(); !errors.Is(err, test.err) || err.Error() != want {
				t.Errorf("got %q, want %q", err, want)
			}
			if asked := counted.n > 0; asked != test.asked || f.epoch != test.epoch {
				t.Errorf("asked to take the node out: %t, it is that of %q", asked, f.epoch)
			}
		})
	}
}

// deregistrations counts the calls of Deregister.
type deregistrations struct {
	store
	n int
}

func (d *deregistrations) Deregister(ctx context.Context, node string, epoch cell.Epoch) ([]string, error) {
	d.n++
	return d.store.Deregister(ctx, node, epoch)
}

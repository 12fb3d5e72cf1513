package collector

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
)

// fake is a collector made of functions; only the runner's goroutine uses its counters.
type fake struct {
	name      string
	available func() bool
	collect   func(ctx context.Context, n int) (Metrics, error)
	n         int
}

func (f *fake) Type() string { return f.name }
func (f *fake) Cost() Cost   { return CostLow }

func (f *fake) Available(context.Context) bool { return f.available == nil || f.available() }

func (f *fake) Collect(ctx context.Context) (Metrics, error) {
	f.n++
	return f.collect(ctx, f.n)
}

// counting has n as its figure.
func counting(name string) *fake {
	return &fake{name: name, collect: func(_ context.Context, n int) (Metrics, error) { return Metrics{"n": n}, nil }}
}

type bed struct {
	*Runner
	logs *observer.ObservedLogs
	stop context.CancelFunc
	done chan struct{}
}

// run starts a runner in the bubble of the test.
func run(t *testing.T, entries ...Entry) *bed {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	r, err := New(entries, zap.New(core), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &bed{Runner: r, logs: logs, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-b.done
	})
	return b
}

func (b *bed) count(name, outcome string) float64 {
	return testutil.ToFloat64(b.metrics.collections.WithLabelValues(name, outcome))
}

func (b *bed) logged(event string) int { return b.logs.FilterMessage(event).Len() }

const interval = 10 * time.Second

func TestEachCollectorRunsInItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		often, seldom := counting("often"), counting("seldom")
		b := run(t, Entry{Collector: often, Interval: interval}, Entry{Collector: seldom, Interval: 10 * interval})
		synctest.Wait()
		if diff := cmp.Diff(Snapshot{"often": {"n": int64(1)}, "seldom": {"n": int64(1)}}, b.Latest()); diff != "" {
			t.Fatalf("expected both at once (- expected, + got):\n%s", diff)
		}
		time.Sleep(10 * interval)
		b.stop()
		<-b.done
		// The second one is early, and the others differ by a tenth at most.
		if often.n < 10 || often.n > 13 || seldom.n != 2 {
			t.Fatalf("%d and %d collections in ten intervals", often.n, seldom.n)
		}
	})
}

// TestOneThatMisbehavesHarmsNobody runs collectors with all kinds of faults beside one that works.
func TestOneThatMisbehavesHarmsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		good := counting("good")
		b := run(t,
			Entry{Collector: &fake{name: "hung", collect: func(context.Context, int) (Metrics, error) {
				<-forever
				return Metrics{"late": true}, nil
			}}, Interval: interval},
			Entry{Collector: &fake{name: "hung-early", available: func() bool {
				<-forever
				return true
			}, collect: counting("").collect}, Interval: interval},
			Entry{Collector: &fake{name: "slow", collect: func(ctx context.Context, _ int) (Metrics, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}}, Interval: interval},
			Entry{Collector: &fake{name: "failing", collect: func(context.Context, int) (Metrics, error) {
				return nil, errors.New("no such thing")
			}}, Interval: interval},
			Entry{Collector: &fake{name: "panicking", collect: func(context.Context, int) (Metrics, error) {
				panic("broken")
			}}, Interval: interval},
			Entry{Collector: good, Interval: interval},
		)
		goroutines := runtime.NumGoroutine()
		time.Sleep(20 * interval)
		synctest.Wait()
		if got := runtime.NumGoroutine(); got > goroutines+6 {
			t.Errorf("%d goroutines, %d at first", got, goroutines)
		}
		if n := b.Latest()["good"]["n"]; n == nil || n.(int64) < 19 {
			t.Errorf("the one that works: %v", n)
		}
		if len(b.Latest()) != 1 {
			t.Errorf("published %v", b.Latest())
		}
		for name, outcome := range map[string]string{"hung": outcomeTimeout, "hung-early": outcomeTimeout} {
			if n := b.count(name, outcome); n != 1 {
				t.Errorf("%s was counted %v times as %s, expected once: it was never started again", name, n, outcome)
			}
		}
		for name, outcome := range map[string]string{"slow": outcomeTimeout, "failing": outcomeError, "panicking": outcomePanic} {
			if n := b.count(name, outcome); n < 15 {
				t.Errorf("%s was counted %v times as %s", name, n, outcome)
			}
		}
		if n := b.logged("collector.failed"); n != 5 {
			t.Errorf("%d lines of failures, expected one a spell: %v", n, b.logs.All())
		}
		for _, line := range b.logs.FilterField(zap.String("type", "panicking")).All() {
			if reason := line.ContextMap()["reason"].(string); !strings.Contains(reason, "broken") || !strings.Contains(reason, "runner_test.go") {
				t.Errorf("expected what was broken and where: %s", reason)
			}
		}
		close(forever)
	})
}

func TestRunDoesNotWaitForAHungCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forever := make(chan struct{})
		b := run(t, Entry{Collector: &fake{name: "hung", collect: func(context.Context, int) (Metrics, error) {
			<-forever
			return nil, nil
		}}})
		synctest.Wait()
		began := time.Now()
		b.stop()
		<-b.done
		if took := time.Since(began); took != stopGrace {
			t.Fatalf("Run ended after %s", took)
		}
		close(forever) // and the goroutine ends, although its result is not read
	})
}

func TestRunWaitsForWhoHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		b := run(t, Entry{Collector: &fake{name: "a", collect: func(ctx context.Context, _ int) (Metrics, error) {
			<-ctx.Done()
			time.Sleep(stopGrace / 2)
			ended = true
			return nil, ctx.Err()
		}}})
		synctest.Wait()
		b.stop()
		<-b.done
		if !ended || b.logged("collector.failed") != 0 {
			t.Fatalf("ended %v, logged %v", ended, b.logs.All())
		}
	})
}

func TestFiguresOfOneThatFailsAreLeftOutAfterThreeIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, Entry{Collector: &fake{name: "a", collect: func(_ context.Context, n int) (Metrics, error) {
			if n > 1 && n < 20 {
				return nil, errors.New("gone")
			}
			return Metrics{"n": n}, nil
		}}, Interval: interval})
		<-b.Changed()
		time.Sleep(keepIntervals*interval - time.Millisecond)
		if b.Latest()["a"] == nil {
			t.Fatal("left out too early")
		}
		time.Sleep(time.Millisecond)
		<-b.Changed()
		if len(b.Latest()) != 0 {
			t.Fatalf("published %v", b.Latest())
		}
		<-b.Changed()
		synctest.Wait()
		if b.Latest()["a"]["n"] != int64(20) || b.logged("collector.failed") != 1 || b.logged("collector.recovered") != 1 {
			t.Fatalf("published %v, logged %v", b.Latest(), b.logs.All())
		}
	})
}

func TestWhoIsNotAvailableIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		f := counting("gpu")
		f.available = func() bool { asked++; return asked == 3 }
		b := run(t, Entry{Collector: f, Interval: interval})
		began := time.Now()
		<-b.Changed()
		if took := time.Since(began); asked != 3 || took < 5*time.Minute || took > 7*time.Minute {
			t.Fatalf("asked %d times in %s", asked, took)
		}
		time.Sleep(3 * interval)
		synctest.Wait()
		if asked != 3 || f.n < 3 {
			t.Fatalf("asked %d times, collected %d times", asked, f.n)
		}
		if b.logged("collector.unavailable") != 1 || b.logged("collector.available") != 1 || b.logged("collector.failed") != 0 {
			t.Fatalf("logged %v", b.logs.All())
		}
	})
}

func TestFiguresBesideAnErrorArePublishedAndTheErrorCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, Entry{Collector: &fake{name: "disk", collect: func(context.Context, int) (Metrics, error) {
			return Metrics{"usage": 0.5}, errors.New("path /data: gone")
		}}, Interval: interval})
		time.Sleep(10 * interval)
		if b.Latest()["disk"]["usage"] != 0.5 || b.logged("collector.failed") != 1 || b.count("disk", outcomeError) < 9 {
			t.Fatalf("published %v, logged %v", b.Latest(), b.logs.All())
		}
	})
}

func TestChangedTellsOfChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, Entry{Collector: &fake{name: "a", collect: func(_ context.Context, n int) (Metrics, error) {
			return Metrics{"n": n / 5}, nil
		}}, Interval: interval})
		for want := range int64(3) {
			<-b.Changed()
			if got := b.Latest()["a"]["n"]; got != want {
				t.Fatalf("got %v, expected %v", got, want)
			}
		}
	})
}

func TestFiguresThatCannotBePublishedAreDroppedAndLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, Entry{Collector: &fake{name: "a", collect: func(context.Context, int) (Metrics, error) {
			return Metrics{
				"ok": 1, "text": strings.Repeat("ä", 100), "Bad": 1, "list": []int{1}, "nothing": nil,
				"nan": nan(),
			}, nil
		}}, Interval: interval})
		time.Sleep(5 * interval)
		want := Snapshot{"a": {"ok": int64(1), "text": strings.Repeat("ä", 64)}}
		if diff := cmp.Diff(want, b.Latest()); diff != "" {
			t.Fatalf("(- expected, + got):\n%s", diff)
		}
		if b.logged("collector.fields_dropped") != 1 {
			t.Fatalf("logged %v", b.logs.All())
		}
	})
}

// TestFiguresHaveTheirTime: it moves on with each collection, also when the figures stay the same.
// That alone is no change.
func TestFiguresHaveTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &fake{name: "slow", collect: func(context.Context, int) (Metrics, error) {
			time.Sleep(interval / 10)
			return Metrics{"n": 1}, nil
		}}
		b := run(t, Entry{Collector: slow, Interval: interval})
		time.Sleep(interval / 5)
		synctest.Wait()
		<-b.Changed()
		_, first := b.Taken()
		time.Sleep(2 * interval)
		synctest.Wait()
		figures, taken := b.Taken()
		if age := time.Since(taken["slow"]); age > interval*5/4 || !taken["slow"].After(first["slow"]) || figures["slow"]["n"] != int64(1) {
			t.Errorf("%v, taken %s ago", figures, age)
		}
		select {
		case <-b.Changed():
			t.Error("a later collection with the same figures counts as a change")
		default:
		}
	})
}

// TestSnapshotsAreBounded has three collectors with as many figures as possible.
func TestSnapshotsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := func(name string, fields int) Entry {
			return Entry{Collector: &fake{name: name, collect: func(context.Context, int) (Metrics, error) {
				m := Metrics{}
				for i := range fields {
					m[fmt.Sprintf("field_%03d_%s", i, strings.Repeat("x", 50))] = strings.Repeat("\x01", MaxTextBytes)
				}
				return m, nil
			}}, Interval: interval}
		}
		b := run(t, full("too-much", MaxFields), full("a", 8), full("b", 8), Entry{Collector: counting("small"), Interval: interval})
		time.Sleep(2 * interval)
		synctest.Wait()
		got := b.Latest()
		if size := got.jsonSize(); size > MaxJSONBytes {
			t.Fatalf("a snapshot of %d bytes", size)
		}
		if got["too-much"] != nil || got["a"] == nil || got["b"] != nil || got["small"] == nil {
			t.Fatalf("expected what fits, in the order of the entries, got %v", got)
		}
		if n := b.logged("collector.left_out"); n != 2 {
			t.Fatalf("%d lines: %v", n, b.logs.All())
		}
		many := make(Metrics)
		for i := range 1000 {
			many[fmt.Sprintf("f%d", i)] = i
		}
		if cleaned, dropped := clean(many); len(cleaned) != MaxFields || len(dropped) != 1 {
			t.Fatalf("%d fields, %v", len(cleaned), dropped)
		}
	})
}

func TestNewRefusesWhatCannotBeUsed(t *testing.T) {
	t.Parallel()
	for want, entries := range map[string][]Entry{
		"collectors[0] is nil": {{}},
		"collectors[1].type is \"a\" like that of another collector, expected each type once": {{Collector: counting("a")}, {Collector: counting("a")}},
		"collectors[0].type has ':' at position 1":                                            {{Collector: counting("a:b")}},
		"collectors[0].interval is 1ms, expected 100ms to 24h0m0s":                            {{Collector: counting("a"), Interval: time.Millisecond}},
		"collectors[0].timeout is 1m0s, expected more than 0s and at most the interval, 15s":  {{Collector: counting("a"), Timeout: time.Minute}},
		"collectors has 65 entries, expected at most 64":                                      make([]Entry, 65),
	} {
		_, err := New(entries, nil, nil)
		var coded *freeslot.Error
		if !errors.As(err, &coded) || coded.Code != freeslot.CodeInvalidArgument || !strings.HasPrefix(coded.Message, want) {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
	reg := prometheus.NewRegistry()
	if _, err := New(nil, nil, reg); err != nil {
		t.Fatal(err)
	}
	if _, err := New(nil, nil, reg); err == nil {
		t.Error("expected the metrics of two runners in one registry to be an error")
	}
}

func TestTimesFollowTheCostUnlessTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want Entry }{
		{Entry{}, Entry{Interval: 15 * time.Second, Timeout: 2 * time.Second}},
		{Entry{Interval: time.Second}, Entry{Interval: time.Second, Timeout: time.Second}},
		{Entry{Interval: time.Minute, Timeout: 30 * time.Second}, Entry{Interval: time.Minute, Timeout: 30 * time.Second}},
	} {
		c.in.Collector = counting("a")
		got := c.in.withDefaults()
		if got.Interval != c.want.Interval || got.Timeout != c.want.Timeout {
			t.Errorf("got %s and %s, expected %s and %s", got.Interval, got.Timeout, c.want.Interval, c.want.Timeout)
		}
	}
	for cost, want := range map[Cost]string{CostLow: "LOW 15s 2s", CostMedium: "MEDIUM 1m0s 5s", CostHigh: "HIGH 5m0s 30s"} {
		if got := fmt.Sprint(cost, " ", cost.DefaultInterval(), " ", cost.DefaultTimeout()); got != want {
			t.Errorf("got %s, expected %s", got, want)
		}
	}
}

// TestLatestIsReadByAnybody is for the race detector.
func TestLatestIsReadByAnybody(t *testing.T) {
	t.Parallel()
	r, err := New([]Entry{{Collector: counting("a"), Interval: MinInterval}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Latest(); got == nil || len(got) != 0 {
		t.Fatalf("before Run: %v", got)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	for range 3 {
		<-r.Changed()
		_ = r.Latest().jsonSize()
		_ = r.Latest().Flat()
	}
	stop()
	<-done
}

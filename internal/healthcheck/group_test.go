package healthcheck

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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

var errDown = errors.New("it is down")

// fake is a probe whose outcomes a test sets.
type fake struct {
	mu    sync.Mutex
	err   error
	hangs bool
	times []time.Time
	under int // checks under way
	most  int
}

func (f *fake) run(ctx context.Context) error {
	f.mu.Lock()
	f.times = append(f.times, time.Now())
	f.under++
	f.most = max(f.most, f.under)
	err, hangs := f.err, f.hangs
	f.mu.Unlock()
	defer func() { f.mu.Lock(); f.under--; f.mu.Unlock() }()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (f *fake) set(err error, hangs bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hangs = err, hangs
}

// bed is a group with one fake for every service, and its reports.
type bed struct {
	*Group
	fake    fake
	mu      sync.Mutex
	reports []string
	log     *observer.ObservedLogs
	reg     *prometheus.Registry
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{reg: prometheus.NewPedanticRegistry()}
	core, log := observer.New(zapcore.DebugLevel)
	b.log = log
	g, err := NewGroup(Options{Log: zap.New(core), Registerer: b.reg, Report: func(service string, failure error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reports = append(b.reports, fmt.Sprintf("%s %v", service, failure == nil))
	}})
	if err != nil {
		t.Fatal(err)
	}
	g.probe = func(*Config) probe { return &b.fake }
	b.Group = g
	t.Cleanup(g.Close)
	return b
}

func (b *bed) reported() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.reports, ", ")
}

func tcpConfig() *Config {
	c := &Config{TCP: &TCP{Address: "127.0.0.1:1"}}
	c.Resolve()
	return c
}

// sleep lets n checks happen in virtual time, with any jitter.
func sleep(n int) {
	time.Sleep(time.Duration(n) * DefaultInterval)
	synctest.Wait()
}

// TestTransitions: each change is reported and logged once, and failures between are counted.
func TestTransitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.fake.set(errDown, false)
		b.Start("asr", tcpConfig(), false)
		sleep(10)
		if got := b.reported(); got != "" {
			t.Errorf("a service that was never offered is reported: %s", got)
		}
		b.fake.set(nil, false)
		sleep(2)
		b.fake.set(errDown, false)
		sleep(8)
		b.fake.set(nil, false)
		sleep(4)
		if got, want := b.reported(), "asr true, asr false, asr true"; got != want {
			t.Errorf("reported %s, expected %s", got, want)
		}
		var lines []string
		for _, e := range b.log.All() {
			lines = append(lines, fmt.Sprint(e.Level, " ", e.Message, " ", e.ContextMap()))
		}
		want := []string{
			"warn service.unhealthy map[check:tcp reason:it is down service:asr]", "info service.healthy map[check:tcp service:asr]",
			"warn service.unhealthy map[check:tcp reason:it is down service:asr]", "info service.healthy map[check:tcp service:asr]",
		}
		if !slices.Equal(lines, want) {
			t.Errorf("logged\n%s\nexpected\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
		if err := testutil.GatherAndCompare(b.reg, strings.NewReader(`
# HELP freeslot_worker_service_healthy 1 while the service's check lets the node offer it, by service that is checked.
# TYPE freeslot_worker_service_healthy gauge
freeslot_worker_service_healthy{service="asr"} 1
`), "freeslot_worker_service_healthy"); err != nil {
			t.Error(err)
		}
		if n := testutil.ToFloat64(b.metrics.failures.WithLabelValues("asr")); n < 15 || n > 21 {
			t.Errorf("%v failures are counted, expected about 18", n)
		}
		b.Stop("asr")
		if n, err := testutil.GatherAndCount(b.reg); n != 0 || err != nil {
			t.Errorf("%d series are left of a service that is not checked any more (%v)", n, err)
		}
	})
}

// TestPace: the first check comes at once, the others an interval apart plus or minus a tenth, for
// checks of any length, and never two at a time.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.fake.set(nil, true)
		begun := time.Now()
		b.Start("asr", tcpConfig(), true)
		sleep(50)
		b.Close()
		if first := b.fake.times[0]; !first.Equal(begun) {
			t.Errorf("the first check came after %s", first.Sub(begun))
		}
		differ := false
		for i := 1; i < len(b.fake.times); i++ {
			gap := b.fake.times[i].Sub(b.fake.times[i-1])
			if gap < DefaultInterval*9/10 || gap > DefaultInterval*11/10 {
				t.Errorf("%s between two checks", gap)
			}
			differ = differ || gap != DefaultInterval
		}
		if len(b.fake.times) < 45 || !differ || b.fake.most != 1 {
			t.Errorf("%d checks, jitter %v, %d at a time", len(b.fake.times), differ, b.fake.most)
		}
		if got := b.log.All(); len(got) != 1 || got[0].ContextMap()["reason"] != "no answer within 2s" {
			t.Errorf(`%+v; want len(got) == 1, got[0].ContextMap()["reason"] == "no answer within 2s"`, got)
		}
	})
}

// TestReplace: there is one loop for each service. A check that is replaced or stopped meanwhile
// reports nothing, and a closed group starts nothing.
func TestReplace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.fake.set(nil, true)
		b.Start("asr", tcpConfig(), true)
		synctest.Wait()
		b.Start("asr", tcpConfig(), false)
		synctest.Wait()
		if n := testutil.ToFloat64(b.metrics.healthy.WithLabelValues("asr")); n != 1 {
			t.Error("a healthy service whose check is replaced is unhealthy")
		}
		if b.fake.under != 1 || len(b.fake.times) != 2 {
			t.Errorf("%d checks under way of %d, expected 1 of 2", b.fake.under, len(b.fake.times))
		}
		b.Stop("asr")
		b.Stop("asr")
		if b.fake.under != 0 {
			t.Error("Stop did not wait")
		}
		b.Start("tts", tcpConfig(), false)
		b.Close()
		b.Close()
		b.Start("asr", tcpConfig(), true)
		synctest.Wait()
		if b.fake.under != 0 || b.reported() != "" || b.log.Len() != 0 {
			t.Errorf("%d checks run after the end; reported %q", b.fake.under, b.reported())
		}
	})
}

func TestMetricsOnce(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if _, err := NewGroup(Options{Log: zap.NewNop(), Registerer: b.reg}); err == nil {
		t.Error("two groups share a registry")
	}
	if _, err := NewGroup(Options{Log: zap.NewNop()}); err != nil {
		t.Error(err)
	}
}

// TestReplaceUnhealthy: the state of a service outlasts a change of its check, so that one lucky
// answer is not enough.
func TestReplaceUnhealthy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.Start("asr", tcpConfig(), true)
		b.fake.set(errDown, false)
		sleep(10)
		slow := tcpConfig()
		slow.Rise = 10
		b.Start("asr", slow, false)
		sleep(3)
		b.fake.set(nil, false)
		sleep(5)
		if got, want := b.reported(), "asr false"; got != want {
			t.Errorf("reported %s after some successes of ten, expected %s", got, want)
		}
		sleep(10)
		if got, want := b.reported(), "asr false, asr true"; got != want {
			t.Errorf("reported %s, expected %s", got, want)
		}
	})
}

package centre

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot/internal/healthcheck"
	"github.com/freeslot/freeslot/internal/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var anywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}

// memory is a store without Redis, for several centres.
type memory struct {
	mu       sync.Mutex
	targets  map[string]registry.Target
	doubts   map[string]string // name -> who doubts
	verdicts []string          // in order
	cleanups map[string][]registry.Cleaned
	cleaned  []string
	down     bool
	unread   cannotRead
	slow     time.Duration // of a cleanup
}

// cannotRead is the service that cannot be read.
type cannotRead string

func (u cannotRead) Error() string { return "cannot read " + string(u) }

func (u cannotRead) Unread(service string) bool { return service == string(u) }

func (u cannotRead) or(err error) error {
	if err == nil && u != "" {
		return u
	}
	return err
}

func newMemory(n int, kind string) *memory {
	m := &memory{targets: make(map[string]registry.Target), doubts: make(map[string]string), cleanups: make(map[string][]registry.Cleaned)}
	for i := range n {
		t := registry.Target{Service: "asr", ID: fmt.Sprint(i), Epoch: "e", Host: "10.0.0.1", Port: 1 + i, Check: registry.Check{Kind: kind, Fall: 2}}
		m.targets[t.Name()] = t
	}
	return m
}

func (m *memory) locked(f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errors.New("Redis is away")
	}
	f()
	return nil
}

func (m *memory) Services(context.Context) (out []string, err error) {
	err = m.locked(func() {
		for s := range m.cleanups {
			if !m.unread.Unread(s) {
				out = append(out, s)
			}
		}
		slices.Sort(out)
	})
	return out, m.unread.or(err)
}

func (m *memory) Cleanup(_ context.Context, service string) (out registry.Cleaned, err error) {
	time.Sleep(m.slow)
	err = m.locked(func() {
		m.cleaned = append(m.cleaned, service)
		if left := m.cleanups[service]; len(left) > 0 {
			out, m.cleanups[service] = left[0], left[1:]
		}
	})
	return out, err
}

func (m *memory) Targets(context.Context) (out []registry.Target, err error) {
	err = m.locked(func() {
		for _, t := range m.targets {
			if !m.unread.Unread(t.Service) {
				out = append(out, t)
			}
		}
	})
	return out, m.unread.or(err)
}

func (m *memory) Verdict(_ context.Context, t *registry.Target, failing string) error {
	return m.locked(func() {
		has := m.targets[t.Name()]
		if has.Epoch != t.Epoch {
			return
		}
		has.Failing = failing
		m.targets[t.Name()] = has
		m.verdicts = append(m.verdicts, t.ID+" "+failing)
		delete(m.doubts, t.Name())
	})
}

func (m *memory) Trust(_ context.Context, t *registry.Target) error {
	return m.locked(func() { delete(m.doubts, t.Name()) })
}

func (m *memory) Doubt(_ context.Context, self string, held []registry.Target) error {
	return m.locked(func() {
		for i := range held {
			m.doubts[held[i].Name()] = self
		}
	})
}

func (m *memory) Doubts(_ context.Context, self string) (out []registry.Target, err error) {
	err = m.locked(func() {
		for name, who := range m.doubts {
			if who != self {
				out = append(out, m.targets[name])
			}
		}
	})
	return out, err
}

func (m *memory) failing() (n int) {
	_ = m.locked(func() {
		for _, t := range m.targets {
			if t.Failing != "" {
				n++
			}
		}
	})
	return n
}

func (m *memory) said() (out []string) {
	_ = m.locked(func() { out = slices.Clone(m.verdicts) })
	return out
}

func (m *memory) names() (out []string) {
	_ = m.locked(func() { out = slices.Clone(m.cleaned) })
	return out
}

// replica is a centre whose checks of kind fake say what it wants.
type replica struct {
	*Centre
	mu      sync.Mutex
	broken  bool
	checked map[string]int
}

func newReplica(t *testing.T, self string, m *memory) *replica {
	t.Helper()
	r := &replica{checked: make(map[string]int)}
	r.Centre = New(Config{Self: self, Networks: anywhere, Probes: map[string]Probe{"fake": r.probe}}, m, zap.NewNop(), nil)
	t.Cleanup(func() { r.stop1(t) })
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replica) stop1(t *testing.T) {
	if err := r.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func (r *replica) probe(_ context.Context, _ healthcheck.Dial, address, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checked[address]++
	if r.broken {
		return errors.New("no route")
	}
	return nil
}

func (r *replica) breaks(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = is
}

// round forgets what was checked, and returns what is checked in the next d.
func (r *replica) round(d time.Duration) int {
	r.mu.Lock()
	clear(r.checked)
	r.mu.Unlock()
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.checked)
}

// TestSharesOfChecks: two replicas share the targets, and when one is gone the other checks all
// within the time of one check.
func TestSharesOfChecks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(40, "fake")
		a, b := newReplica(t, "a", m), newReplica(t, "b", m)
		for _, r := range []*replica{a, b} {
			r.SetReplicas([]string{"a", "b"})
		}
		time.Sleep(time.Minute)
		if ofA, ofB := a.round(10*time.Second), b.round(10*time.Second); ofA+ofB != 40 || ofA < 5 || ofB < 5 {
			t.Errorf("the replicas check %d and %d targets, expected 40 together", ofA, ofB)
		}
		b.stop1(t)
		a.SetReplicas([]string{"a"})
		if got := a.round(6 * time.Second); got != 40 {
			t.Errorf("%d targets are checked after the end of the other replica, expected 40", got)
		}
	})
}

// TestVerdicts: a failure is written after Fall checks, a recovery too, and what Redis did not take
// is written later.
func TestVerdicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1, "fake")
		a := newReplica(t, "a", m)
		time.Sleep(time.Minute)
		if m.failing() != 0 || len(m.said()) != 0 {
			t.Fatalf("verdicts of a well instance: %q", m.said())
		}
		_ = m.locked(func() { m.down = true })
		a.breaks(true)
		time.Sleep(time.Minute)
		m.mu.Lock()
		m.down = false
		m.mu.Unlock()
		time.Sleep(10 * time.Second)
		if m.failing() != 1 {
			t.Errorf("verdicts %q, expected that the instance fails", m.said())
		}
		a.breaks(false)
		time.Sleep(time.Minute)
		if got := strings.Join(m.said(), ", "); got != "0 no route, 0 " {
			t.Errorf("verdicts %q, expected a failure and a recovery", got)
		}
	})
}

// TestRepeatsFailures: the failure of a persistent instance is written again while checks fail, also by
// a replica that took it over, but not before that has checked.
func TestRepeatsFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(2, "fake")
		persistent := m.targets["asr:1"]
		persistent.Persistent = true
		m.targets["asr:1"] = persistent
		a := newReplica(t, "a", m)
		a.breaks(true)
		time.Sleep(2 * time.Minute)
		a.stop1(t)
		repeats := func() (n int) {
			for _, said := range m.said() {
				if said == "1 no route" {
					n++
				}
			}
			return n
		}
		first := repeats()
		if first < 8 || first > 13 || len(m.said()) != first+1 {
			t.Errorf("verdicts %q, expected one of 0, and one of 1 each 10 s", m.said())
		}
		b := newReplica(t, "b", m) // all is well again, as b finds
		time.Sleep(time.Minute)
		if got := repeats(); got != first || m.failing() != 0 {
			t.Errorf("%d verdicts after the recovery, %q", got-first, m.said())
		}
		b.breaks(true)
		time.Sleep(time.Minute)
		b.stop1(t)
		before := repeats()
		c := newReplica(t, "c", m)
		c.breaks(true)
		time.Sleep(time.Minute)
		if got := repeats() - before; got < 4 {
			t.Errorf("%d verdicts by the replica that took the check over, %q", got, m.said())
		}
	})
}

// TestDoubt: a replica that sees everything fail writes nothing while the other one sees that all
// is well. When both see it, it is true. A replica that is alone believes itself.
func TestDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(40, "fake")
		a, b := newReplica(t, "a", m), newReplica(t, "b", m)
		for _, r := range []*replica{a, b} {
			r.SetReplicas([]string{"a", "b"})
		}
		time.Sleep(time.Minute)
		a.breaks(true)
		time.Sleep(5 * time.Minute)
		// The first failures of a wave come before it is one.
		if got := m.failing(); got > 10 {
			t.Errorf("%d instances fail, expected few: one replica alone is cut off", got)
		}
		b.breaks(true)
		time.Sleep(time.Minute)
		if got := m.failing(); got != 40 {
			t.Errorf("%d instances fail, expected all 40: both replicas see it", got)
		}
		a.breaks(false)
		b.breaks(false)
		time.Sleep(time.Minute)
		if got := m.failing(); got != 0 {
			t.Errorf("%d instances fail after the recovery", got)
		}
		b.stop1(t)
		a.SetReplicas([]string{"a"})
		a.breaks(true)
		time.Sleep(time.Minute)
		if got := m.failing(); got != 40 {
			t.Errorf("%d instances fail, expected 40: there is no other replica to ask", got)
		}
	})
}

// TestNewEpoch: the verdict of an earlier life says nothing of the next one.
func TestNewEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1, "fake")
		a := newReplica(t, "a", m)
		a.breaks(true)
		time.Sleep(time.Minute)
		a.breaks(false)
		_ = m.locked(func() {
			next := m.targets["asr:0"]
			next.Epoch, next.Failing = "f", ""
			m.targets["asr:0"] = next
		})
		before := len(m.said())
		time.Sleep(time.Minute)
		if m.failing() != 0 || len(m.said()) != before {
			t.Errorf("verdicts %q, expected none of the new epoch", m.said()[before:])
		}
	})
}

// TestCleanup: each service is cleaned until nothing is due, and one round's error is not the next
// one's.
func TestCleanup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(0, "")
		m.cleanups["asr"] = []registry.Cleaned{{Removed: 200, More: true}, {Removed: 200, More: true}, {Removed: 3}}
		m.cleanups["mt"] = nil
		newReplica(t, "a", m)
		time.Sleep(DefaultCleanup * 11 / 10)
		synctest.Wait()
		if got := strings.Join(slices.Sorted(slices.Values(m.names())), " "); got != "asr asr asr mt" {
			t.Errorf("cleaned %q, expected asr until nothing is due, and mt once", got)
		}
		m.mu.Lock()
		m.down, m.cleaned = true, nil
		m.mu.Unlock()
		time.Sleep(time.Minute)
		m.mu.Lock()
		m.down = false
		m.mu.Unlock()
		time.Sleep(DefaultCleanup * 11 / 10)
		synctest.Wait()
		_ = m.locked(func() {
			if len(m.cleaned) < 2 {
				t.Errorf("cleaned %q after the outage, expected both services", m.cleaned)
			}
		})
	})
}

// TestCleanupGoesOn: a round cleans some services side by side. One that was not long enough is gone
// on with, and what cannot be read keeps nothing from being cleaned.
func TestCleanupGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(0, "")
		var all []string
		for i := range 4 * cleanAtOnce {
			all = append(all, fmt.Sprintf("s%02d", i))
			m.cleanups[all[i]] = nil
		}
		m.cleanups["r"] = nil
		m.unread, m.slow = "r", DefaultCleanup*2/5 // three at a place in a round
		c := New(Config{Self: "a"}, m, zap.NewNop(), nil)
		for range 4 {
			c.clean()
		}
		m.slow = 0
		c.clean()
		got := m.names()
		for round, n := range []int{3 * cleanAtOnce, 3 * cleanAtOnce, 3 * cleanAtOnce, 3 * cleanAtOnce, len(all)} {
			from := round * 3 * cleanAtOnce
			var want []string
			for i := from; i < from+n; i++ {
				want = append(want, all[i%len(all)])
			}
			slices.Sort(want)
			if had := slices.Sorted(slices.Values(got[from:min(from+n, len(got))])); !slices.Equal(had, want) {
				t.Errorf("round %d cleaned %q, expected %q", round, had, want)
			}
		}
	})
}

// TestUnreadTargets: the checks of targets that cannot be read go on; others begin and end.
func TestUnreadTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(2, "fake")
		a := newReplica(t, "a", m)
		if got := a.round(10 * time.Second); got != 2 {
			t.Fatalf("%d targets are checked, expected 2", got)
		}
		_ = m.locked(func() {
			m.unread = "asr"
			for port := range 3 {
				o := registry.Target{Service: "mt", ID: fmt.Sprint(port), Epoch: "e", Host: "10.0.0.2", Port: 1 + port, Check: registry.Check{Kind: "fake"}}
				m.targets[o.Name()] = o
			}
		})
		time.Sleep(10 * time.Second)
		if got := a.round(10 * time.Second); got != 5 {
			t.Errorf("%d targets are checked, expected 5", got)
		}
		_ = m.locked(func() { delete(m.targets, "mt:0") })
		time.Sleep(10 * time.Second)
		if got := a.round(10 * time.Second); got != 4 {
			t.Errorf("%d targets are checked, expected 4", got)
		}
		_ = m.locked(func() { m.unread = ""; delete(m.targets, "asr:0") })
		time.Sleep(10 * time.Second)
		if got := a.round(10 * time.Second); got != 3 {
			t.Errorf("%d targets are checked, expected 3", got)
		}
	})
}

// TestNetworks: no connection is opened to an address that is not allowed, by no name and no kind
// of check.
func TestNetworks(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepted sync.WaitGroup
	opened := 0
	accepted.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			opened++
			_ = conn.Close()
		}
	})
	port := l.Addr().(*net.TCPAddr).Port
	once := func(networks string, host, kind string) error {
		c := New(Config{Networks: []netip.Prefix{netip.MustParsePrefix(networks)}}, nil, zap.NewNop(), nil)
		cfg, err := c.configOf(&registry.Target{Host: host, Port: port, Check: registry.Check{Kind: kind}})
		if err != nil {
			t.Fatal(err)
		}
		return healthcheck.Once(t.Context(), cfg, c.dial)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "::ffff:127.0.0.1"} {
		for _, kind := range []string{"http", "https", "tcp", "grpc", "websocket"} {
			if err := once("10.0.0.0/8", host, kind); err == nil || !strings.Contains(err.Error(), "registry.checks.networks") {
				t.Errorf("%s check of %s: %v, expected a refusal", kind, host, err)
			}
		}
	}
	if err := once("127.0.0.0/8", "localhost", "tcp"); err != nil {
		t.Errorf("an allowed address: %v", err)
	}
	_ = l.Close()
	accepted.Wait()
	if opened != 1 {
		t.Errorf("%d connections were opened, expected the allowed one", opened)
	}
}

// TestNotAllowedIsNoVerdict: a configuration that allows no checks takes no instance out.
func TestNotAllowedIsNoVerdict(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"http", "tcp", "grpc", "websocket"} {
		m := newMemory(1, kind)
		refused := make(chan struct{}, 1)
		log := zap.New(zapcore.NewNopCore(), zap.WrapCore(func(zapcore.Core) zapcore.Core {
			return zapcore.RegisterHooks(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zap.WarnLevel), func(e zapcore.Entry) error {
				if e.Message == "registry.check_not_allowed" {
					refused <- struct{}{}
				}
				return nil
			})
		}))
		change := m.targets["asr:0"]
		change.Check.Fall, change.Check.Interval = 1, registry.Milliseconds(time.Second)
		m.targets["asr:0"] = change
		c := New(Config{Self: "a", Networks: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}}, m, log, nil)
		c.SetReplicas([]string{"a"})
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-refused:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: no warning", kind)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if got := m.said(); len(got) != 0 {
			t.Errorf("%s: verdicts %q", kind, got)
		}
	}
}

// TestVerdictOfAnother: what another replica has written last is checked anew, so that no instance
// stays out that is well.
func TestVerdictOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(1, "fake")
		newReplica(t, "a", m)
		time.Sleep(time.Minute)
		target := m.targets["asr:0"]
		if err := m.Verdict(t.Context(), &target, "seen from another place"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if m.failing() != 0 {
			t.Errorf("verdicts %q, expected that the instance is well again", m.said())
		}
	})
}

// TestUnknownKind: a kind that this replica does not know is no verdict. It is logged once for a
// service, and a verdict of an earlier kind is withdrawn.
func TestUnknownKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(3, "ldap")
		core, logged := observer.New(zap.WarnLevel)
		c := New(Config{Self: "a", Networks: anywhere}, m, zap.New(core), nil)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if len(m.said()) != 0 {
			t.Errorf("verdicts %q", m.said())
		}
		_ = m.locked(func() {
			earlier := m.targets["asr:1"]
			earlier.Failing = "no route"
			m.targets["asr:1"] = earlier
		})
		time.Sleep(time.Minute)
		if got := m.said(); !slices.Equal(got, []string{"1 "}) {
			t.Errorf("verdicts %q, expected that the failure is withdrawn", got)
		}
		if all := logged.FilterMessage("registry.check_refused").All(); len(all) != 1 || !strings.Contains(fmt.Sprint(all[0].ContextMap()), `kind "ldap"`) {
			t.Errorf("logged %v, expected one refusal", all)
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestNoNetworks: without networks no check is made. One line for all services says what to set.
func TestNoNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		m := newMemory(3, "fake")
		c := New(Config{Self: "a"}, m, zap.New(core), nil)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		const want = "registry.checks.networks is empty, so no instance is checked: set the networks of the instances, such as [10.0.0.0/8]"
		all := logged.FilterMessage("registry.check_refused").All()
		if len(all) != 1 || all[0].ContextMap()["error"] != want || len(m.said()) != 0 {
			t.Errorf("logged %v, verdicts %q, expected one line that says what to set, and no verdict", all, m.said())
		}
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestWithdrawnVerdict: an instance whose check is not made any more does not stay out.
func TestWithdrawnVerdict(t *testing.T) {
	for name, networks := range map[string][]netip.Prefix{"none": nil, "others": {netip.MustParsePrefix("192.168.0.0/16")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(2, "tcp")
				for name, target := range m.targets {
					target.Failing, target.Check.Interval = "no route", registry.Milliseconds(time.Second)
					m.targets[name] = target
				}
				reg := prometheus.NewPedanticRegistry()
				c := New(Config{Self: "a", Networks: networks}, m, zap.NewNop(), reg)
				if err := c.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(settling / 2)
				if got := m.said(); len(got) != 0 {
					t.Errorf("verdicts %q of a replica that may not know the others", got)
				}
				time.Sleep(time.Minute)
				if got := m.said(); m.failing() != 0 || len(got) != 2 {
					t.Errorf("verdicts %q, expected each withdrawn once", got)
				}
				synctest.Wait()
				const unchecked = "freeslot_registry_unchecked_instances"
				if err := testutil.GatherAndCompare(reg, strings.NewReader("# HELP "+unchecked+" Instances whose check this replica does not make: its kind is not known, or registry.checks.networks does not allow it.\n# TYPE "+unchecked+" gauge\n"+unchecked+" 2\n"), unchecked); err != nil {
					t.Error(err)
				}
				if err := c.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

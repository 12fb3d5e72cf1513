package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMeter(t *testing.T) {
	t.Parallel()
	m := NewMeter()
	at := m.takenAt
	m.now = func() time.Time { return at }
	take := func(later time.Duration) []Submits { at = at.Add(later); return m.Take() }
	for i := range 30 {
		m.Count("acme", i < 10)
	}
	m.Count("beta", false)
	want := []Submits{{"acme", 3, 1}, {"beta", 0.1, 0}}
	if got := take(10 * time.Second); !cmp.Equal(got, want) {
		t.Errorf("took %v; want %v", got, want)
	}
	m.Count("beta", true)
	if got, want := take(2*time.Second), []Submits{{"beta", 0.5, 0.5}}; !cmp.Equal(got, want) {
		t.Errorf("took %v; want %v", got, want)
	}
	if m.tenants.Size() != 1 {
		t.Errorf("%d tenants are kept; want the one that was not silent", m.tenants.Size())
	}
	for i := range mostMetered + 10 {
		m.Count(fmt.Sprint("t", i), false)
	}
	if got := take(time.Second); len(got) != Busiest || m.tenants.Size() != mostMetered-1 {
		t.Errorf("took %d, kept %d; want %d and %d", len(got), m.tenants.Size(), Busiest, mostMetered-1)
	}
}

// fixture is a lister over counts and statuses that a test sets.
type fixture struct {
	*Lister
	asked    [][]string
	heard    int // questions for statuses
	statuses map[string]string
	err      error
	away     bool
	at       time.Time
}

func (f *fixture) Use(_ context.Context, tenants []string) (used []cell.Use, failed map[int]error) {
	f.asked = append(f.asked, tenants)
	for i := range tenants {
		used = append(used, cell.Use{Running: 10 * (i + 1), Held: i, Waiting: 4, OldestHeldMS: int64(i)})
	}
	if f.away {
		failed = map[int]error{1: errors.New("away")}
	}
	return used, failed
}

func newFixture(told ...[]Submits) *fixture {
	f := &fixture{statuses: map[string]string{"old": "no JSON", "older": "{}"}, at: time.UnixMilli(1_768_000_000_000)}
	for i, tenants := range told {
		text, _ := json.Marshal(map[string]any{"tenants": tenants, "build": "x"})
		f.statuses[fmt.Sprint("r", i)] = string(text)
	}
	two, five := 2, 5
	f.Lister = NewLister(config.Replica{
		Tenants: map[string]config.Tenant{
			"acme": {Weight: &two, MaxRunning: 10, MaxWaiting: 4}, "beta": {SubmitRate: 100, MaxPriority: &five},
			"zeta": {MaxRunning: 50},
		},
		TenantDefaults: config.Tenant{MaxWaiting: 5},
	}, f, func(context.Context) (map[string]string, error) { f.heard++; return f.statuses, f.err })
	f.now = func() time.Time { return f.at }
	return f
}

func (f *fixture) byName(t *testing.T, list TenantList) (names []string, all map[string]TenantStatus) {
	t.Helper()
	all = make(map[string]TenantStatus)
	for _, s := range list.Tenants {
		names, all[s.Name] = append(names, s.Name), s
	}
	return names, all
}

func TestAll(t *testing.T) {
	t.Parallel()
	f := newFixture([]Submits{{"beta", 60, 1}, {"small", 1, 0}}, []Submits{{"beta", 30, 2}, {"large", 9, 0}})
	f.away = true
	list, err := f.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names, all := f.byName(t, list)
	if want := []string{"acme", "beta", "zeta", "large", "small"}; !cmp.Equal(names, want) {
		t.Fatalf("listed %v; want %v", names, want)
	}
	if want := [][]string{{"acme", "zeta", "large", "small"}}; !cmp.Equal(f.asked, want) {
		t.Errorf("asked for %v; want those with limits that count jobs, %v", f.asked, want)
	}
	running, held, waiting := 10, 0, 4
	if want := (TenantStatus{
		Name: "acme", Configured: true, Running: &running, Held: &held, Waiting: &waiting,
		HeldBackBy: []string{"max_waiting"},
		Limits:     TenantLimits{Weight: 2, MaxRunning: 10, MaxWaiting: 4, MaxPriority: 9},
	}); !cmp.Equal(all["acme"], want) {
		t.Error(cmp.Diff(want, all["acme"]))
	}
	if want := (TenantStatus{
		Name: "beta", Configured: true, Rate: 90, RefusedRate: 3, HeldBackBy: []string{"submit_rate"},
		Limits: TenantLimits{Weight: 1, SubmitRate: 100, SubmitBurst: 100, MaxPriority: 5},
	}); !cmp.Equal(all["beta"], want) {
		t.Error(cmp.Diff(want, all["beta"]))
	}
	if s := all["zeta"]; *s.Running != 20 || *s.Held != 1 || s.Waiting != nil ||
		!cmp.Equal(s.HeldBackBy, []string{"max_running"}) {
		t.Errorf("zeta is %+v; want its running jobs alone, one of them held back", s)
	}
	if s := all["small"]; s.Configured || s.Running != nil || *s.Waiting != 4 || s.Rate != 1 || s.Limits.MaxWaiting != 5 {
		t.Errorf("small is %+v; want the limits of tenant_defaults", s)
	}
	if !cmp.Equal(list.Unreachable, []int{1}) {
		t.Errorf("cells %v do not answer; want 1", list.Unreachable)
	}
}

// TestAskedOnce: however many look, the cells get one question in two seconds.
func TestAskedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture()
	for range 5 {
		_, _ = f.All(t.Context())
	}
	if f.at = f.at.Add(keptFor); len(f.asked) != 1 {
		t.Errorf("asked %d times; want once", len(f.asked))
	}
	f.err = errors.New("away")
	if _, err := f.All(t.Context()); err == nil {
		t.Error("an old list without an error; want the error of the store")
	}
}

// TestOneCountsOne: a tenant that looks at itself makes the cells count no other, and once in two
// seconds. What the list of all has of it is not asked for again.
func TestOneCountsOne(t *testing.T) {
	t.Parallel()
	f := newFixture([]Submits{{"zeta", 7, 0}, {"beta", 3, 0}})
	look := func(names ...string) {
		t.Helper()
		for _, name := range names {
			list, err := f.One(t.Context(), name)
			if err != nil || len(list.Tenants) != 1 || list.Tenants[0].Name != name || name == "zeta" &&
				list.Tenants[0].Rate != 7 {
				t.Errorf("%+v, %v; want %s, and 7 as zeta's rate", list, err, name)
			}
		}
	}
	look("zeta", "zeta", "acme", "zeta", "acme")
	if want := [][]string{{"zeta"}, {"acme"}}; !cmp.Equal(f.asked, want) || f.heard != 1 {
		t.Errorf("asked the cells for %v, replicas %d times; want %v, and once", f.asked, f.heard, want)
	}
	f.at, f.away = f.at.Add(keptFor), true
	all, err := f.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.asked = nil
	look("zeta", "acme", "beta")
	if list, _ := f.One(t.Context(), "acme"); len(f.asked) > 0 || list.AtMS != all.AtMS ||
		!cmp.Equal(list.Unreachable, []int{1}) {
		t.Errorf("asked the cells for %v, acme is %+v; want it as in the list of all, without a question", f.asked, list)
	}
}

// TestOnesAreBounded: names that no tenant has fill nothing.
func TestOnesAreBounded(t *testing.T) {
	t.Parallel()
	f := newFixture()
	for i := range 2 * mostKept {
		_, _ = f.One(t.Context(), fmt.Sprint("t", i))
	}
	if len(f.ones) != mostKept {
		t.Errorf("%d lists are kept; want %d", len(f.ones), mostKept)
	}
	f.at = f.at.Add(keptFor)
	if _, _ = f.One(t.Context(), "acme"); len(f.ones) != 1 {
		t.Errorf("%d lists are kept two seconds later; want the one that is new", len(f.ones))
	}
}

// TestGone: what a caller who went away did not see is no list for others.
func TestGone(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.away = true
	ctx, cancel := context.WithCancel(t.Context())
	f.Lister.statuses = func(context.Context) (map[string]string, error) { cancel(); return nil, nil }
	_, _ = f.All(ctx)
	f.away = false
	if list, err := f.All(t.Context()); err != nil || len(list.Unreachable) > 0 || len(f.asked) != 2 {
		t.Errorf("%+v, %v; want a list of its own, of all cells", list, err)
	}
}

// TestTurn: who waits for another's list waits no longer than its own time.
func TestTurn(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.turn <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.All(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v; want that its time is over", err)
	}
}

func TestBusiest(t *testing.T) {
	t.Parallel()
	var told []Submits
	for i := range 300 {
		told = append(told, Submits{fmt.Sprintf("t%03d", i), float64(i + 1), 0})
	}
	f := newFixture(told)
	list, err := f.All(t.Context())
	if n := len(list.Tenants); err != nil || n != 3+Busiest || list.Tenants[3].Name != "t299" ||
		list.Tenants[n-1].Name != "t100" {
		t.Errorf("listed %d tenants, %v; want the three of the configuration and the busiest of the others", n, err)
	}
	for i := range mostNamed + 5 {
		f.cfg.Tenants[fmt.Sprintf("named%04d", i)] = config.Tenant{}
	}
	f.at = f.at.Add(keptFor)
	if list, _ = f.All(t.Context()); len(list.Tenants) != mostNamed+Busiest || list.LeftOut != 8 {
		t.Errorf("listed %d, left out %d; want %d and 8", len(list.Tenants), list.LeftOut, mostNamed+Busiest)
	}
	if one, err := f.One(t.Context(), "zeta"); err != nil || len(one.Tenants) != 1 || *one.Tenants[0].Running != 10 {
		t.Errorf("%+v, %v; want the tenant that was left out", one, err)
	}
}

func TestRights(t *testing.T) {
	t.Parallel()
	f := newFixture([]Submits{{"acme", 60, 1}, {"beta", 1, 0}})
	s := apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) { d.Routes = []api.Routes{f.Routes} })
	for _, test := range []struct {
		token, query string
		status       int
		want, not    string
	}{
		{"root-token", "", 200, `"name":"beta"`, "\x00"},
		{"root-token", "?tenant=beta", 200, `"name":"beta"`, `"name":"acme"`},
		{"acme-token", "", 200, `"name":"acme"`, `"name":"beta"`},
		{"acme-token", "?tenant=acme", 200, `"name":"acme"`, `"name":"beta"`},
		{"acme-token", "?tenant=beta", 403, `"field":"tenant"`, `"name"`},
		{"root-token", "?tenant=a%20b", 400, `"field":"tenant"`, `"name"`},
	} {
		got := s.Do(t, http.MethodGet, "/v1/tenants"+test.query, "", "Authorization", "Bearer "+test.token)
		if got.Status != test.status || !strings.Contains(got.Text, test.want) || strings.Contains(got.Text, test.not) {
			t.Errorf("%s: %d %.300s; want %d, %s", test.query, got.Status, got.Text, test.status, test.want)
		}
	}
}

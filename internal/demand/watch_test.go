package demand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// system is a fleet with jobs that a test sets.
type system struct {
	mu          sync.Mutex // guards told and away, which tests change while a loop runs
	nodes       []*selection.Node
	cfg         *selection.Config // replaced, never changed
	stale       bool
	backlogs    map[dispatch.Kind]dispatch.KindBacklog
	unreachable []int
	told        []Told
	away        bool
}

func (s *system) Present(time.Duration) iter.Seq[*selection.Node] { return slices.Values(s.nodes) }
func (s *system) SilenceLimit() time.Duration                     { return time.Second }
func (s *system) Config() *selection.Config                       { return s.cfg }
func (s *system) Stale() bool                                     { return s.stale }

func (s *system) KindBacklogs() (map[dispatch.Kind]dispatch.KindBacklog, []int) {
	return s.backlogs, s.unreachable
}

// statuses returns the same of two replicas of this release, and of one of another.
func (s *system) statuses(context.Context) (map[string]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, errors.New("away")
	}
	text, err := json.Marshal(map[string]any{"demand": s.told, "tenants": 7})
	return map[string]string{"a": string(text), "b": string(text), "old": "no JSON"}, err
}

// tell sets what the replicas tell, and whether Redis is away.
func (s *system) tell(away bool, told []Told) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away, s.told = away, told
}

func (s *system) watch() *Watch { return NewWatch(s, s, s.statuses, zap.NewNop()) }

// add adds a node of four slots.
func (s *system) add(id string, used int, pools []string, services ...freeslot.Service) *selection.Node {
	n := selection.NewNode(selection.Compile(&freeslot.Node{
		ID: id, MaxConcurrency: 4, Pools: pools, Services: services,
	}), 0)
	n.SetUsed(used)
	s.nodes = append(s.nodes, n)
	return n
}

var (
	asr = dispatch.Kind{Pool: "gpu", Service: "asr"}
	tts = dispatch.Kind{Pool: "gpu", Service: "tts"}
)

func newSystem() *system {
	s := &system{cfg: &selection.Config{Enabled: true, Pools: selection.Pools{
		{ID: "gpu", Services: []string{"asr"}}, {ID: "idle"},
	}}}
	s.add("n1", 3, nil, freeslot.Service{Name: "asr", Version: "1"}, freeslot.Service{Name: "asr", Version: "2"})
	s.add("n2", 1, []string{"idle"}, freeslot.Service{Name: "asr"}, freeslot.Service{Name: "tts"})
	s.add("n3", 4, nil, freeslot.Service{Name: "asr"}).SetDraining(true)
	s.add("n4", 2, []string{"own"})
	s.add("n5", 0, nil)
	return s
}

// TestPicture: nodes count in each of their pools, jobs in one; a draining node offers no slots.
func TestPicture(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{
			asr:              {Waiting: 5, Paused: 1, OldestMS: time.Now().Add(-3 * time.Second).UnixMilli()},
			tts:              {Due: 2, DueSlots: 6},
			{Service: "ocr"}: {Waiting: 1, Paused: 1},
			{Pool: "later"}:  {Waiting: 2},
		}
		w := s.watch()
		w.Refresh()
		got := w.Current()
		list := []PoolDemand{
			{
				Pool: "gpu", Nodes: 2, Draining: 1, BusyNodes: 3, Slots: 8,
				Demand: Demand{
					UsedSlots: 4, FreeSlots: 4, WaitingJobs: 5, PausedJobs: 1, DueJobs: 2, WantedSlots: 10, OldestWaitMS: 3000,
				},
				Services: []ServiceDemand{
					{"asr", Demand{UsedSlots: 4, FreeSlots: 4, WaitingJobs: 5, PausedJobs: 1, WantedSlots: 4, OldestWaitMS: 3000}},
					{"tts", Demand{UsedSlots: 1, FreeSlots: 3, DueJobs: 2, WantedSlots: 6}},
				},
			},
			{Pool: "idle", Nodes: 1, BusyNodes: 1, Slots: 4, Demand: Demand{UsedSlots: 1, FreeSlots: 3}, Services: []ServiceDemand{}},
			{
				Pool: "later", Demand: Demand{WaitingJobs: 2, WantedSlots: 2},
				Services: []ServiceDemand{{"", Demand{WaitingJobs: 2, WantedSlots: 2}}},
			},
			{Pool: "own", Nodes: 1, BusyNodes: 1, Slots: 4, Demand: Demand{UsedSlots: 2, FreeSlots: 2}, Services: []ServiceDemand{}},
			{
				Nodes: 1, Slots: 4, Demand: Demand{FreeSlots: 4, WaitingJobs: 1, PausedJobs: 1},
				Services: []ServiceDemand{{"ocr", Demand{WaitingJobs: 1, PausedJobs: 1}}},
			},
		}
		if want := (&DemandList{Pools: list, AtMS: time.Now().UnixMilli()}); !cmp.Equal(got, want) {
			t.Errorf("the demand differs from the expected one:\n%s", cmp.Diff(want, got))
		}
		s.cfg = &selection.Config{Pools: s.cfg.Pools} // then only the profiles of nodes say in which pool they are
		w.Refresh()
		if got := w.Current().Pools; len(got) != 5 || got[0].Pool != "gpu" || got[0].Nodes != 0 || got[1].Nodes != 1 {
			t.Errorf("with pools that are disabled: %+v; want gpu without nodes, idle with the one that names it", got)
		}
	})
}

// TestPoolsAreBounded: no node or job fills a picture.
func TestPoolsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSystem()
	s.backlogs = make(map[dispatch.Kind]dispatch.KindBacklog)
	for i := range mostPools + 10 {
		s.backlogs[dispatch.Kind{Pool: fmt.Sprint("p", i)}] = dispatch.KindBacklog{Waiting: 1}
	}
	w := s.watch()
	w.Refresh()
	if n := len(w.Current().Pools); n != mostPools {
		t.Errorf("%d pools are listed; want %d", n, mostPools)
	}
	told := make(map[dispatch.Kind]Told)
	for i := range mostKinds + 10 {
		told[dispatch.Kind{Pool: fmt.Sprint("p", i)}] = Told{Came: 1}
	}
	kinds := make(map[dispatch.Kind]*rates)
	observe(kinds, told, time.Second)
	if len(kinds) != mostKinds {
		t.Errorf("%d kinds are kept; want %d", len(kinds), mostKinds)
	}
	observe(kinds, nil, time.Hour)
	if len(kinds) != 0 {
		t.Errorf("%d kinds are kept that were silent for an hour; want none", len(kinds))
	}
}

// TestRates: rates are sums of all replicas, and stay as they are while Redis is away. The loop
// makes pictures until Stop.
func TestRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSystem()
		s.told = []Told{
			{Pool: "gpu", Service: "asr", Came: 2, Slots: 4, Ended: 1, Ran: 2}, {Pool: "gpu", Service: "tts", Came: 1, Slots: 1},
		}
		s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{asr: {Waiting: 3}}
		w := s.watch()
		if err := w.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		check := func() {
			t.Helper()
			gpu := w.Current().Pools[0]
			near := func(what string, got, want float64) {
				t.Helper()
				if math.Abs(got-want) > 1e-3*want {
					t.Errorf("%s is %v; want %v", what, got, want)
				}
			}
			near("arrivals of the pool", gpu.Arrivals, 6)
			near("arrivals of asr", gpu.Services[0].Arrivals, 4)
			near("the run time of asr", *gpu.Services[0].RunMS, 2000)
			// Of all jobs a third has a known run time. 8 slots begin per second for asr, 2 for tts.
			near("the run time of the pool", *gpu.RunMS, 4.0/10*1000)
			if gpu.WantedSlots != 6 || gpu.Services[1].RunMS != nil {
				t.Errorf("%+v; want two slots for each of three jobs, and no run time of tts", gpu)
			}
		}
		check()
		s.tell(true, s.told)
		time.Sleep(time.Hour)
		synctest.Wait()
		check()
		s.tell(false, nil)
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if gpu := w.Current().Pools[0]; gpu.Arrivals != 0 || gpu.WantedSlots != 3 || gpu.RunMS != nil {
			t.Errorf("after two hours without jobs: %+v; want that nothing is known of them", gpu)
		}
		if err := w.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRunTime: by Little's law, also while a queue grows, and by results where most are awaited.
func TestRunTime(t *testing.T) {
	t.Parallel()
	var s starts
	for i := range 1000 { // of 3 arriving slots per second 2 begin, and 10 are in use
		s.add(10, float64(5*i), 3, 5*time.Second)
	}
	few, most := &rates{came: 10, ended: 4, ran: 4}, &rates{came: 10, ended: 5, ran: 40}
	if got := s.run(few); math.Abs(got-5) > 0.05 {
		t.Errorf("a job runs for %v s; want 5, which is 10 slots in use divided by 2 that begin per second", got)
	}
	if got := s.run(most); got != 8 {
		t.Errorf("a job runs for %v s; want 8, which is the mean of the results", got)
	}
	if got := new(starts).run(few); got != 1 {
		t.Errorf("a job runs for %v s; want 1, as the results say, while no slot was used", got)
	}
	if got := new(starts).run(new(rates)); got != 0 {
		t.Errorf("a job runs for %v s; want 0, because nothing is known", got)
	}
}

func TestStopWithoutStart(t *testing.T) {
	t.Parallel()
	w := newSystem().watch()
	for range 2 {
		if err := w.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRoutes: clients see nothing of the fleet.
func TestRoutes(t *testing.T) {
	t.Parallel()
	w := newSystem().watch()
	w.Refresh()
	s := apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) { d.Routes = []api.Routes{w.Routes} })
	for _, test := range []struct {
		token, query string
		status       int
		want, not    string
	}{
		{"root-token", "", 200, `"pool":"idle"`, "\x00"},
		{"root-token", "?pool=gpu", 200, `"pool":"gpu"`, `"pool":"idle"`},
		{"root-token", "?pool=none", 404, `"field":"pool"`, `"pools"`},
		{"root-token", "?pool=a%20b", 400, `"field":"pool"`, `"pools"`},
		{"acme-token", "", 403, `"permission_denied"`, `"pools"`},
	} {
		got := s.Do(t, http.MethodGet, "/v1/demand"+test.query, "", "Authorization", "Bearer "+test.token)
		if got.Status != test.status || !strings.Contains(got.Text, test.want) || strings.Contains(got.Text, test.not) {
			t.Errorf("%s: %d %.300s; want %d, %s", test.query, got.Status, got.Text, test.status, test.want)
		}
	}
}

// TestMetrics: what is not known has no value, so that no scaler takes an outage for an idle fleet.
func TestMetrics(t *testing.T) {
	t.Parallel()
	s := newSystem()
	s.backlogs = map[dispatch.Kind]dispatch.KindBacklog{asr: {Waiting: 5}, tts: {}}
	w := s.watch()
	count := func(name string) int {
		w.Refresh()
		return testutil.CollectAndCount(w.Collector(), name)
	}
	if n := count("freeslot_pool_nodes"); n != 4 {
		t.Errorf("%d pools have nodes; want 4", n)
	}
	if n := count("freeslot_demand_wanted_slots"); n != 2 {
		t.Errorf("%d services have wanted slots; want 2", n)
	}
	for i := range mostSeries {
		s.backlogs[dispatch.Kind{Pool: "idle", Service: fmt.Sprint(i)}] = dispatch.KindBacklog{Waiting: 1}
	}
	if n := count("freeslot_demand_wanted_slots"); n != mostSeries {
		t.Errorf("%d services have wanted slots; want the %d largest", n, mostSeries)
	}
	text, err := testutil.CollectAndFormat(w.Collector(), expfmt.TypeTextPlain, "freeslot_demand_wanted_slots")
	if err != nil || !strings.Contains(string(text), `{pool="gpu",service="asr"} 5`) {
		t.Errorf("%v, %.500s; want the five slots of asr", err, text)
	}
	s.stale, s.unreachable = true, []int{1}
	for _, name := range []string{"freeslot_pool_nodes", "freeslot_pool_used_slots", "freeslot_demand_wanted_slots"} {
		if n := count(name); n != 0 {
			t.Errorf("%s has %d values while nodes and a cell are not known; want none", name, n)
		}
	}
}

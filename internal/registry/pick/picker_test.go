package pick

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/registry"
)

var policies = []Policy{Random, RoundRobin, Weighted, LeastLoaded, ConsistentHash}

func TestOnlyUsableInstances(t *testing.T) {
	t.Parallel()
	bad := []*registry.Instance{
		instance("a", func(i *registry.Instance) { i.Disabled = true }),
		instance("b", func(i *registry.Instance) { i.Draining = true }),
		instance("c", func(i *registry.Instance) { i.Unhealthy = true }),
		instance("d", func(i *registry.Instance) { i.Failing = "connection refused" }),
		instance("e", func(i *registry.Instance) { i.Late = true }),
	}
	for _, policy := range policies {
		r := newRig(t, Config{Policy: policy}, append(bad, instance("good"))...)
		if got := r.shares(200); got["good"] < 0.999 {
			t.Errorf("%s: picked %v", policy, got)
		}
		r.set(bad...)
		if got := r.shares(200); got["e"] < 0.999 {
			t.Errorf("%s: of a list of the last resort picked %v", policy, got)
		}
	}
}

func TestEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{})
	for _, tc := range []struct {
		list *registry.List
		want string
	}{
		{nil, "no list of the service yet"},
		{&registry.List{Service: "asr", State: registry.StateEmpty, Why: registry.WhyExpired}, "service asr has no instance to use; its list is empty: expired"},
		{&registry.List{Service: "asr", State: registry.StateStale, Instances: fleet(1, func(i *registry.Instance) { i.Draining = true })}, "empty: none healthy"},
	} {
		r.list.Store(tc.list)
		_, err := r.Pick(t.Context(), "")
		var empty *registry.EmptyError
		if !errors.As(err, &empty) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("got %v, want %q", err, tc.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Pick(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	err := Config{Policy: "best", LoadFactor: math.NaN()}.Validate()
	if err == nil || !strings.Contains(err.Error(), "policy") || !strings.Contains(err.Error(), "1 more") {
		t.Errorf("got %v, want both fields", err)
	}
}

// Shares go by weight where the policy says so, and are equal elsewhere.
func TestShares(t *testing.T) {
	t.Parallel()
	const n, picks = 50, 200000
	instances, total := fleet(n), 0.0
	for i, inst := range instances {
		inst.Weight = []float64{0.5, 1, 2, 7.5}[i%4]
		total += inst.Weight
	}
	for _, policy := range []Policy{Random, RoundRobin, Weighted, LeastLoaded} {
		got := newRig(t, Config{Policy: policy}, instances...).shares(picks)
		for _, inst := range instances {
			want := 1.0 / n
			switch policy {
			case Weighted:
				want = inst.Weight / total
			case LeastLoaded: // all idle: the heavier of the two, if they differ
				continue
			}
			// Six standard deviations of a binomial distribution.
			if off := math.Abs(got[inst.ID] - want); off > 6*math.Sqrt(want/picks) {
				t.Errorf("%s: %s of weight %v got %.4f, want %.4f", policy, inst.ID, inst.Weight, got[inst.ID], want)
			}
		}
	}
}

// Calls that do not end are spread in proportion to weights, far better than by chance.
func TestLeastLoadedSpreads(t *testing.T) {
	t.Parallel()
	instances, total := fleet(40), 0.0
	for i, inst := range instances {
		inst.Weight = float64(1 + i%4)
		total += inst.Weight
	}
	r := newRig(t, Config{Policy: LeastLoaded}, instances...)
	const calls = 4000
	got := map[*registry.Instance]float64{}
	for range calls {
		got[r.pick("").Instance]++
	}
	for inst, n := range got {
		if want := calls * inst.Weight / total; math.Abs(n-want) > 0.15*want+3 {
			t.Errorf("%s of weight %v has %v calls, want about %.0f", inst.ID, inst.Weight, n, want)
		}
	}
}

// At no time has an instance more calls than the factor times its share, rounded up, when it gets
// one more; with all keys equal, too.
func TestBoundedLoad(t *testing.T) {
	t.Parallel()
	for _, keys := range []int{1, 5, 100000} {
		instances, total := fleet(30), 0.0
		for i, inst := range instances {
			inst.Weight = float64(1 + i%3)
			total += inst.Weight
		}
		r := newRig(t, Config{Policy: ConsistentHash}, instances...)
		load, all := map[string]int{}, []Picked{}
		for i := range 3000 {
			picked := r.pick(fmt.Sprint("key-", i%keys))
			all = append(all, picked)
			load[picked.Instance.ID]++
			bound := math.Ceil(DefaultLoadFactor * float64(len(all)) * picked.Instance.Weight / total)
			if float64(load[picked.Instance.ID]) > bound {
				t.Fatalf("%d keys: %s has %d calls of %d, bound %v", keys, picked.Instance.ID, load[picked.Instance.ID], len(all), bound)
			}
			if i%3 == 2 { // some calls end
				at := i * 7 % len(all)
				all[at].Done(nil)
				load[all[at].Instance.ID]--
				all[at] = all[len(all)-1]
				all = all[:len(all)-1]
			}
		}
		for _, picked := range all {
			picked.Done(nil)
		}
		if n := r.underWay.Load(); n != 0 {
			t.Errorf("%d calls are under way after all are done", n)
		}
	}
}

// Keys stay while their instance does: when one goes, only its keys move, and they return with it.
func TestFewKeysMove(t *testing.T) {
	t.Parallel()
	const n, keys = 100, 5000
	instances := fleet(n)
	r := newRig(t, Config{Policy: ConsistentHash}, instances...)
	places := func() map[int]string {
		out := make(map[int]string, keys)
		for key := range keys {
			picked := r.pick(fmt.Sprint(key))
			out[key] = picked.Instance.ID
			picked.Done(nil)
		}
		return out
	}
	before := places()
	gone := instances[n/2]
	r.set(append(append([]*registry.Instance{}, instances[:n/2]...), instances[n/2+1:]...)...)
	moved := 0
	for key, id := range places() {
		if id == before[key] {
			continue
		}
		if moved++; before[key] != gone.ID {
			t.Fatalf("key %d moved from %s, which is still there", key, before[key])
		}
	}
	if moved == 0 || moved > 3*keys/n {
		t.Errorf("%d of %d keys moved, want about %d", moved, keys, keys/n)
	}
	r.set(instances...)
	for key, id := range places() {
		if id != before[key] {
			t.Fatalf("key %d is on %s, was on %s before", key, id, before[key])
		}
	}
}

func TestOwnZone(t *testing.T) {
	t.Parallel()
	for _, policy := range policies {
		far := instance("c", in("east"))
		r := newRig(t, Config{Policy: policy, Zone: "west"}, instance("a", in("west")), instance("b"), far)
		if got := r.shares(300); got["a"] < 0.999 {
			t.Errorf("%s: picked %v, want a alone", policy, got)
		}
		r.pick("").Done(ErrUnavailable)
		if got := r.shares(300); got["a"] > 0 {
			t.Errorf("%s: picked %v although a is set aside", policy, got)
		}
		r.set(instance("b"), far)
		if got := r.shares(300); len(got) == 0 {
			t.Errorf("%s: picked none although the zone has none", policy)
		}
	}
}

func TestPickOther(t *testing.T) {
	t.Parallel()
	for _, policy := range policies {
		r := newRig(t, Config{Policy: policy}, fleet(2)...)
		for range 50 {
			first := r.pick("key")
			second, err := r.PickOther(t.Context(), "key", first)
			if err != nil || second.Instance == first.Instance {
				t.Fatalf("%s: second pick: %v, %v", policy, second.Instance, err)
			}
			first.Done(nil)
			second.Done(nil)
		}
		r.set(fleet(1)...)
		if _, err := r.PickOther(t.Context(), "", r.pick("")); !errors.Is(err, ErrNoOther) {
			t.Errorf("%s: got %v, want ErrNoOther", policy, err)
		}
	}
}

// Many goroutines pick while lists change: each gets an instance of a list, and counts even out.
func TestRace(t *testing.T) {
	t.Parallel()
	for _, policy := range policies {
		instances := fleet(60, weighing(2))
		var list atomic.Pointer[registry.List]
		set := func(from, to int) {
			list.Store(&registry.List{Service: "asr", State: registry.StateLive, Instances: instances[from:to]})
		}
		set(0, 60)
		p := New(Config{Policy: policy, Zone: "west"}, source{&list})
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := range 2000 {
					picked, err := p.Pick(t.Context(), fmt.Sprint(i%50))
					if err != nil {
						t.Error(err)
						return
					}
					var outcome error
					if i%5 == worker%5 {
						outcome = fmt.Errorf("dial: %w", ErrUnavailable)
					}
					picked.Done(outcome)
				}
			})
		}
		for i := range 300 {
			set(i%20, 60-i%30)
		}
		wg.Wait()
		if n := p.underWay.Load(); n != 0 {
			t.Errorf("%s: %d calls are under way after all are done", policy, n)
		}
	}
}

type source struct {
	list *atomic.Pointer[registry.List]
}

func (s source) List() *registry.List { return s.list.Load() }

func TestPickDoesNotAllocate(t *testing.T) {
	for _, policy := range policies {
		r := newRig(t, Config{Policy: policy, Zone: "west"}, append(fleet(99), instance("x", in("west"), weighing(3)), instance("y", in("west")))...)
		if n := testing.AllocsPerRun(100, func() { r.pick("key").Done(nil) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", policy, n)
		}
	}
}

// TestFilter: a picker with a filter chooses among the instances that it takes, late ones of these as the last resort.
func TestFilter(t *testing.T) {
	t.Parallel()
	filter, err := registry.NewFilter([]freeslot.LabelRule{{Label: "zone", Operator: freeslot.LabelIn, Values: []string{"east"}}}, []string{"cpu.usage < 0.8"})
	if err != nil {
		t.Fatal(err)
	}
	load := func(usage string) func(*registry.Instance) {
		return func(i *registry.Instance) { i.Metrics = json.RawMessage(`{"cpu":{"usage":` + usage + `}}`) }
	}
	late := func(i *registry.Instance) { i.Late = true }
	for _, policy := range policies {
		r := newRig(t, Config{Policy: policy, Filter: filter},
			instance("busy", in("east"), load("0.9")), instance("east", in("east"), load("0.1")), instance("silent", in("east")), instance("west", in("west"), load("0.1")))
		if got := r.shares(200); got["east"] < 0.999 {
			t.Errorf("%s: picked %v, expected east alone", policy, got)
		}
		r.set(instance("east", in("east"), load("0.1"), late), instance("west", in("west"), load("0.1")))
		if got := r.shares(200); got["east"] < 0.999 {
			t.Errorf("%s: picked %v, expected the late one, which is the last that the filter takes", policy, got)
		}
		r.set(instance("west", in("west"), load("0.1")))
		var empty *registry.EmptyError
		if _, err := r.Pick(t.Context(), ""); !errors.As(err, &empty) || empty.Why != registry.WhyNoneMatches {
			t.Errorf("%s: %v, expected that none matches", policy, err)
		}
	}
}

// TestCalls: response times are means of the calls since the last collection that were answered.
func TestCalls(t *testing.T) {
	t.Parallel()
	calls := NewCalls()
	r := newRig(t, Config{Calls: calls}, instance("a"))
	call := func(took time.Duration, err error) {
		picked := r.pick("")
		r.time = r.time.Add(took)
		picked.Done(err)
	}
	call(10*time.Millisecond, nil)
	call(25*time.Millisecond, nil)
	call(time.Hour, errors.New("no answer"))
	calls.Add("Texts-2.eu", time.Second, nil)
	calls.Add("7-up", 0, errors.New("no answer"))
	got, _ := calls.Collect(t.Context())
	want := collector.Metrics{
		"asr_ms": 17.5, "asr_answered": int64(2), "asr_failed": int64(1), "texts_2_eu_ms": 1000.0, "texts_2_eu_answered": int64(1), "texts_2_eu_failed": int64(0),
		"s7_up_answered": int64(0), "s7_up_failed": int64(1),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if again, _ := calls.Collect(t.Context()); len(again) > 0 {
		t.Errorf("%v, expected nothing without a call", again)
	}
	for i := range 200 {
		calls.Add(fmt.Sprintf("service-%d", i), time.Millisecond, nil)
	}
	if got, _ := calls.Collect(t.Context()); len(got) > collector.MaxFields || got["other_answered"] != int64(200-maxServices) {
		t.Errorf("%d figures, %v of others; expected at most %d, and %d", len(got), got["other_answered"], collector.MaxFields, 200-maxServices)
	}
}

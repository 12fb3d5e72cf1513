package locked

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func rich() cell.NodeState {
	return cell.NodeState{
		Node: freeslot.Node{
			ID: "n1", MaxConcurrency: 4, Services: []freeslot.Service{{Name: "tts", Version: "1"}, {Name: "asr"}},
			Languages: freeslot.Languages{ASR: []string{"de", "en"}}, Pools: []string{"p", "q"},
			Labels: map[string]string{"zone": "a"}, Features: map[string]bool{"f": true},
		},
		Epoch: "e1", Status: freeslot.StatusOnline, Used: 1, Resources: json.RawMessage(`{"cpu":1}`), Revision: 3, RegisteredAtMS: 5, LastHeartbeatMS: 6,
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for field, edit := range map[string]func(*cell.NodeState){
		"max_concurrency":    func(s *cell.NodeState) { s.Node.MaxConcurrency = 5 },
		"installed_services": func(s *cell.NodeState) { s.Node.Services = s.Node.Services[:1] },
		"capabilities":       func(s *cell.NodeState) { s.Node.Languages.TTS = []string{"de"} },
		"pool_ids":           func(s *cell.NodeState) { s.Node.Pools = nil },
		"labels":             func(s *cell.NodeState) { s.Node.Labels = map[string]string{"zone": "b"} },
		"features_supported": func(s *cell.NodeState) { s.Node.Features = map[string]bool{"f": false} },
		"epoch":              func(s *cell.NodeState) { s.Epoch = "e2" },
		"status":             func(s *cell.NodeState) { s.Status = freeslot.StatusDraining },
		"registered_at_ms":   func(s *cell.NodeState) { s.RegisteredAtMS = 1 },
		"used":               func(s *cell.NodeState) { s.Used = 2 },
		"resources":          func(s *cell.NodeState) { s.Resources = nil },
		"node":               func(s *cell.NodeState) { s.Node.ID = "n2" },
	} {
		a, b := rich(), rich()
		edit(&b)
		got := Compare([]cell.NodeState{a}, []cell.NodeState{b})
		if field == "node" {
			want := []Difference{{Node: "n1", Field: field, A: "known", B: "absent"}, {Node: "n2", Field: field, A: "absent", B: "known"}}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			continue
		}
		if len(got) != 1 || got[0].Field != field || got[0].A == got[0].B || !strings.Contains(got[0].String(), "node n1: "+field+" is ") {
			t.Errorf(`%s: %v; want len(got) == 1, got[0].Field == %v, got[0].A != got[0].B, strings.Contains(got[0].String(), "node n1: "+field+" is ")`, field, got, field)
		}
	}
}

func TestCompareSameMeaning(t *testing.T) {
	t.Parallel()
	a, b := rich(), rich()
	b.Node.Services = []freeslot.Service{{Name: "asr"}, {Name: "tts", Version: "1"}, {Name: "asr"}}
	b.Node.Languages = freeslot.Languages{ASR: []string{"en", "de", "en"}, TTS: []string{}}
	b.Node.Pools = []string{"q", "p"}
	b.Revision, b.LastHeartbeatMS = 9, 9
	empty, none := cell.NodeState{Node: freeslot.Node{ID: "n2"}}, cell.NodeState{Node: freeslot.Node{
		ID: "n2", Services: []freeslot.Service{}, Pools: []string{}, Labels: map[string]string{}, Features: map[string]bool{},
	}}
	if got := Compare([]cell.NodeState{a, empty}, []cell.NodeState{none, b}); got != nil {
		t.Error(got)
	}
}

// drifting agrees with the other copy from the given reading on.
type drifting struct {
	later       *State
	reads, from int
	late        cell.NodeState
}

func (d *drifting) State(id string) (cell.NodeState, bool) {
	if d.reads++; d.reads >= d.from {
		return d.later.State(id)
	}
	return d.late, true
}

func (d *drifting) States() []cell.NodeState { return []cell.NodeState{d.late} }

func verifier(a, b Picture) (*Verifier, *prometheus.Registry, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.WarnLevel)
	reg := prometheus.NewRegistry()
	return NewVerifier(a, b, time.Millisecond, zap.New(core), reg), reg, logs
}

func TestVerify(t *testing.T) {
	t.Parallel()
	a, b := New(Config{}), New(Config{})
	a.Put(online("n1", 4))
	used := online("n1", 4)
	used.Used = 2
	b.Put(used)
	v, reg, logs := verifier(a, b)
	if got := v.Verify(t.Context()); len(got) != 0 || logs.Len() != 0 {
		t.Errorf("slots in use are no difference: %v", got)
	}
	b.Put(online("n1", 5))
	for i := range 20 {
		a.Put(online(names("x", 20)[i], 4))
	}
	got := v.Verify(t.Context())
	if len(got) != 21 || logs.FilterMessage("locked.differs").Len() != logged || logs.FilterMessage("locked.differs_more").Len() != 1 {
		t.Errorf("%d differences, %d lines", len(got), logs.Len())
	}
	want := "# HELP freeslot_locked_comparisons_total Comparisons of the lock-based copy of the fleet with the cache.\n# TYPE freeslot_locked_comparisons_total counter\nfreeslot_locked_comparisons_total 2\n" +
		"# HELP freeslot_locked_differences Differences that the last comparison found.\n# TYPE freeslot_locked_differences gauge\nfreeslot_locked_differences 21\n"
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if got := v.Verify(ended); got != nil {
		t.Error("a comparison that was given up found", got)
	}
}

// TestVerifyLooksAgain: a change that the second copy gets a moment later is no
// difference.
func TestVerifyLooksAgain(t *testing.T) {
	t.Parallel()
	a := New(Config{})
	a.Put(online("n1", 4))
	v, _, logs := verifier(a, &drifting{later: a, from: rereads, late: *online("n1", 3)})
	if got := v.Verify(t.Context()); len(got) != 0 || logs.Len() != 0 {
		t.Error(got)
	}
	v, _, _ = verifier(a, &drifting{later: a, from: rereads + 1, late: *online("n1", 3)})
	if got := v.Verify(t.Context()); len(got) != 1 || got[0].Field != "max_concurrency" {
		t.Error(got)
	}
}

func TestVerifierRuns(t *testing.T) {
	t.Parallel()
	a, b := New(Config{}), New(Config{})
	a.Put(online("n1", 4))
	core, logs := observer.New(zapcore.WarnLevel)
	told := make(chan struct{}, 64)
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error {
		select {
		case told <- struct{}{}:
		default:
		}
		return nil
	}))
	v := NewVerifier(a, b, time.Millisecond, log, nil)
	if err := v.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // again and again
		waittest.Receive(t, "a comparison", told)
	}
	for range 2 {
		if err := v.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if e := logs.All()[0]; e.Message != "locked.differs" || e.ContextMap()["node"] != "n1" {
		t.Error(e)
	}
	never := NewVerifier(a, b, 0, log, nil)
	if err := never.Stop(t.Context()); err != nil || never.interval != DefaultVerifyInterval {
		t.Error(err, never.interval)
	}
	if err := never.Start(t.Context()); err != nil {
		t.Error(err)
	}
}

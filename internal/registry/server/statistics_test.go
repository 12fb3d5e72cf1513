package server

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot/internal/node/collector"
	"github.com/freeslot/freeslot/internal/registry"
	"github.com/freeslot/freeslot/internal/registry/pick"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestStatistics: the spread of real figures of 20 instances.
func TestStatistics(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_700_000_000_000)
	details := make([]registry.Detail, 20)
	for i := range details {
		n := i + 1 // 1 to 20
		details[i] = registry.Detail{
			Instance: registry.Instance{
				Registration: registry.Registration{ID: fmt.Sprint(n), Interval: 10 * time.Second, Persistent: n == 20, Disabled: n == 19},
				RegisteredAt: now.Add(-time.Duration(n) * time.Second),
				Metrics:      json.RawMessage(fmt.Sprintf(`{"cpu":{"usage":%v},"http":{"response_ms":%d},"disk":{"path":"/"}}`, float64(n)/20, 10*n)),
			},
			BeatAt: now.Add(-time.Duration(n) * time.Millisecond),
		}
	}
	details[0].Metrics = nil // one sends none
	details[1].Metrics = json.RawMessage(`{"cpu":{"usage":"broken"}}`)
	details[2].RegisteredAt = now.Add(time.Hour) // Redis' clock went back
	got := statistics(details, now)
	want := Statistics{
		Instances: 20, Healthy: 19, Disabled: 1, Abnormal: []Abnormal{{ID: "19", Reason: "is disabled"}},
		HeartbeatDelayMS: Distribution{Count: 19, Min: 1, Mean: 10, P50: 10, P95: 19, Max: 19},
		UptimeMS:         Distribution{Count: 20, Min: 0, Mean: 10350, P50: 10000, P95: 19000, Max: 20000},
		Metrics: map[string]Distribution{
			"cpu.usage":        {Count: 18, Min: 0.15, Mean: 0.575, P50: 0.55, P95: 1, Max: 1},
			"http.response_ms": {Count: 18, Min: 30, Mean: 115, P50: 110, P95: 200, Max: 200},
		},
	}
	round := cmp.Transformer("rounded", func(f float64) string { return fmt.Sprintf("%.6f", f) })
	if diff := cmp.Diff(want, got, round); diff != "" {
		t.Error(diff)
	}
}

// TestMeanResponseTime: what pickers and transports of the instances of one service have measured of another one is in
// the statistics of the first.
func TestMeanResponseTime(t *testing.T) {
	t.Parallel()
	b := newBed(t, redistest.Shared(t))
	calls := pick.NewCalls()
	for _, took := range []time.Duration{20 * time.Millisecond, 40 * time.Millisecond} {
		calls.Add("users", took, nil)
	}
	calls.Add("users", time.Hour, fmt.Errorf("no answer"))
	p, err := registry.NewProviderOn(b.store, registry.Options{StopPause: -1, Collectors: []collector.Entry{{Collector: calls, Interval: time.Hour}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := p.Register(t.Context(), registry.Registration{Service: "orders", ID: "o1", Host: "127.0.0.1", Port: 9001}); err != nil {
		t.Fatal(err)
	}
	want := `"calls.users_ms":{"count":1,"min":30,"mean":30,"p50":30,"p95":30,"max":30}`
	text := ""
	waittest.Until(t, want, func() bool {
		text = b.ask(t, "GET", services+"/orders", "").Text
		return strings.Contains(text, want)
	}, func() any { return text })
}

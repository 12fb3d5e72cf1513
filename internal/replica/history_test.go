package replica

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot/internal/history"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestHistory: a replica shows what it and another one have done, in real time.
func TestHistory(t *testing.T) {
	t.Parallel()
	cfg := configured(t)
	var replicas []*Replica
	for _, name := range []string{"a", "b"} {
		cfg := cfg
		cfg.ReplicaID = name
		r := New(cfg, zap.NewNop(), prometheus.NewRegistry())
		start(t, r)
		t.Cleanup(func() {
			if err := r.Stop(context.Background()); err != nil {
				t.Errorf("stop %s: %v; want nil", name, err)
			}
		})
		replicas = append(replicas, r)
	}
	var values map[string]float64
	waittest.Until(t, "both replicas to have a history of each other", func() bool {
		for _, r := range replicas { // no node fits: refused
			resp, err := http.Post("http://"+r.Addr()+"/v1/jobs", "application/json", nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
		}
		resp, err := http.Get("http://" + replicas[1].Addr() + "/v1/history?since=10s")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var table history.HistoryTable
		if err := json.NewDecoder(resp.Body).Decode(&table); err != nil {
			t.Fatal(err)
		}
		values = map[string]float64{}
		for _, row := range table.Rows {
			for i, v := range row {
				if v != nil {
					values[table.Columns[i]] = max(values[table.Columns[i]], *v)
				}
			}
		}
		_, ends := values["ends_succeeded"]
		return ends && values["replicas"] == 2 && values["replicas_cpu"] > 0 && values["redis_call_p99_ms"] > 0
	})
	if values["redis_memory_bytes"] < 1<<19 || values["replicas_memory_bytes"] < 1<<20 {
		t.Errorf("values %v; want the memory of Redis and of the replicas", values)
	}
	for _, name := range history.Columns() {
		if _, known := values[name]; !known && !slices.Contains([]string{
			"assign_p50_ms", "assign_p99_ms", "events_delay_p50_ms", "events_delay_p99_ms",
		}, name) {
			t.Errorf("%s has no value; want one", name)
		}
	}
}

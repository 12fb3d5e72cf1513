package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/redistest/golden"
)

// explained is a fleet with a node for most reasons.
func explained(f *apitest.Nodes) {
	add := func(id string, cell int, change func(*freeslot.Node)) *selection.Node {
		n := &freeslot.Node{
			ID: id, MaxConcurrency: 4, Services: []freeslot.Service{{Name: "tts", Version: "1.4.0"}},
			Languages: freeslot.Languages{TTS: []string{"de"}}, Labels: map[string]string{"gpu": "a100", "vram": "80"},
			Features: map[string]bool{"emotion": true},
		}
		if change != nil {
			change(n)
		}
		live := selection.NewNode(selection.Compile(n), cell)
		live.Seen(0)
		f.Live = append(f.Live, live)
		return live
	}
	add("busy", 0, nil).SetUsed(4)
	add("draining", 0, nil).SetDraining(true)
	add("ready", 0, func(n *freeslot.Node) { n.Pools = []string{"eu"} }).SetUsed(1)
	add("french", 1, func(n *freeslot.Node) { n.Languages.TTS = []string{"fr"} })
	add("lonely", 1, func(n *freeslot.Node) { n.MaxConcurrency = 1 })
	add("old", 1, func(n *freeslot.Node) { n.Services[0].Version = "1.1.0" })
	add("small", 1, func(n *freeslot.Node) { n.Labels["vram"] = "24" })
	add("plain", 1, func(n *freeslot.Node) { n.Features = nil })
	add("spare", 1, nil)
	add("upper", 1, func(n *freeslot.Node) { n.Services = []freeslot.Service{{Name: "upper"}} })
	add("away", 2, nil)
	f.Skipped = selection.CellMask(0).With(2)
}

const explainedJob = `{"service":"tts","slots":2,"affinity_key":"session-7","requirement":{"preferred_pool":"eu","target_language":"de-AT",
	"services":["tts@^1.2"],"labels":{"gpu":"a100"},"label_rules":[{"label":"vram","operator":"ge","values":["40"]}],"features":["emotion"]}}`

// TestExplain compares the whole answer.
func TestExplain(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	explained(f.Nodes)
	got := f.Do(t, "POST", "/v1/explain", explainedJob)
	if got.Status != http.StatusOK {
		t.Fatal(got.Status, got.Text)
	}
	var text bytes.Buffer
	if err := json.Indent(&text, []byte(got.Text), "", "  "); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "explain.json", text.String())
}

func TestExplainLimit(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	explained(f.Nodes)
	for limit, want := range map[int]int{0: 0, 3: 3, 11: 11, 1000: 11} {
		got := f.Do(t, "POST", "/v1/explain", fmt.Sprintf(`{"service":"tts","limit":%d}`, limit))
		nodes, _ := got.Body["nodes"].([]any)
		if got.Status != http.StatusOK || len(nodes) != want || got.Body["omitted"] != float64(11-want) || got.Body["total"] != 11.0 {
			t.Errorf("limit %d: %d %s", limit, got.Status, got.Text)
		}
	}
	empty := apitest.New(t, api.Config{})
	if got := empty.Do(t, "POST", "/v1/explain", `{"service":"tts"}`); got.Status != http.StatusOK || got.Body["candidates"] == nil || got.Body["nodes"] == nil {
		t.Errorf("without nodes: %d %s", got.Status, got.Text)
	}
}

// TestExplainOutcome: the answer that a submit would get.
func TestExplainOutcome(t *testing.T) {
	t.Parallel()
	check := func(f *apitest.Server, job, want string, fits, qualify int) apitest.Response {
		t.Helper()
		got := f.Do(t, "POST", "/v1/explain", job)
		if got.Body["outcome"] != want || got.Body["fits"] != float64(fits) || got.Body["qualify"] != float64(qualify) {
			t.Errorf("%s: %v of %v and %v, expected %s of %d and %d", job, got.Body["outcome"], got.Body["fits"], got.Body["qualify"], want, fits, qualify)
		}
		return got
	}
	f := apitest.New(t, api.Config{})
	const job = `{"service":"tts"}`
	check(f, job, "no_matching_node", 0, 0)
	var nodes []*selection.Node
	for i := range 2 {
		n := selection.NewNode(selection.Compile(&freeslot.Node{
			ID: fmt.Sprint("n", i), MaxConcurrency: 3, Services: []freeslot.Service{{Name: "tts"}},
		}), i)
		n.Seen(0)
		nodes = append(nodes, n)
	}
	f.Nodes.Live = nodes
	check(f, job, "accepted", 2, 2)
	check(f, `{"service":"tts","slots":3}`, "accepted", 2, 2)
	check(f, `{"service":"tts","slots":99}`, "no_matching_node", 0, 0)
	check(f, `{"service":"asr"}`, "no_matching_node", 0, 0)
	e := apitest.New(t, api.Config{})
	e.Nodes.Live, e.Nodes.Returning = nodes, true
	e.Nodes.Rules = selection.Config{Enabled: true, Pools: selection.Pools{{ID: "gpu", Expects: &selection.Expects{Services: []string{"asr"}}}}}
	if got := check(e, `{"service":"asr"}`, "waits", 0, 0); fmt.Sprint(got.Body["expected_pools"]) != "[gpu]" {
		t.Errorf("expected_pools are %v; want [gpu]", got.Body["expected_pools"])
	}
	if got := check(e, job, "accepted", 2, 2); got.Body["expected_pools"] != nil {
		t.Errorf("expected_pools are %v where a node fits", got.Body["expected_pools"])
	}
	f.Nodes.Returning = true
	check(f, `{"service":"asr"}`, "unavailable", 0, 0)
	f.Nodes.Returning = false
	nodes[0].SetUsed(3)
	nodes[1].SetUsed(3)
	check(f, job, "waits", 2, 0)
	nodes[1].SetUsed(0)

	// While the store does not answer, no job can be placed, whatever is known of nodes.
	away := cache.CellHealth{Synced: true, Stale: true, Age: 4500 * time.Millisecond}
	f.Nodes.Freshness.Cells = []cache.CellHealth{{Synced: true}, away}
	f.Nodes.Skipped = selection.CellMask(0).With(1)
	if got := check(f, job, "waits", 2, 0); got.Body["degraded"] != true || got.Body["age_ms"] != 4500.0 {
		t.Error(got.Text)
	}
	check(f, `{"service":"asr"}`, "unavailable", 0, 0)
	nodes[0].SetDraining(true)
	check(f, job, "unavailable", 2, 0)
	nodes[0].SetDraining(false)
	nodes[0].SetUsed(0)
	check(f, job, "accepted", 2, 1)
	f.Nodes.Freshness.Cells[0], f.Nodes.Skipped = away, 0 // all cells are away, so none is skipped
	check(f, job, "unavailable", 2, 2)
	f.Nodes.Freshness.Cells = nil
	nodes[0].SetDraining(true)
	nodes[1].SetDraining(true)
	if got := check(f, job, "waits", 2, 0); got.Body["degraded"] != nil || got.Body["age_ms"] != nil {
		t.Error(got.Text)
	}
}

// TestExplainDraining: three causes have one reason.
func TestExplainDraining(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	tests := []struct {
		epoch  string
		status freeslot.Status
		want   string
	}{
		{"e1", freeslot.StatusDraining, "takes no new jobs"},
		{"e2", freeslot.StatusDrained, "drained by an operator, takes no new jobs"},
		{cell.ImportEpoch, freeslot.StatusDraining, "imported, its agent has not started"},
	}
	for _, tt := range tests {
		state := node("node-" + tt.epoch)
		state.Epoch, state.Status = tt.epoch, tt.status
		f.Nodes.ByID[state.Node.ID] = state
		n := selection.NewNode(selection.Compile(&state.Node), 0)
		n.Seen(0)
		n.SetDraining(true)
		f.Nodes.Live = append(f.Nodes.Live, n)
	}
	got := f.Do(t, "POST", "/v1/explain", `{"service":"tts"}`)
	for i, tt := range tests {
		if n := got.Body["nodes"].([]any)[i]; fmt.Sprint(apitest.At(n, "detail")) != tt.want || fmt.Sprint(apitest.At(n, "reason")) != "draining" {
			t.Error(n)
		}
	}
}

func TestExplainRefuses(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	for content, field := range map[string]string{
		`{}`:                                                "job.service",
		`{"service":"tts","x":1}`:                           "job.x",
		`{"service":"tts","payload":1}`:                     "job.payload",
		`{"service":"tts","limit":"1"}`:                     "limit",
		`{"service":5}`:                                     "job.service",
		`{"service":"tts","limit":-1}`:                      "limit",
		`{"service":"tts","limit":1001}`:                    "limit",
		`{"service":"tts","slots":-1}`:                      "job.slots",
		`{"service":"tts","requirement":{"pool":"a pool"}}`: "job.requirement.pool",
		`{"service":"tts"`:                                  "job",
	} {
		got := f.Do(t, "POST", "/v1/explain", content)
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if got.Body["field"] != field {
			t.Errorf("%s: field %v, expected %s", content, got.Body["field"], field)
		}
	}
	withAuth := apitest.New(t, api.Config{}, apitest.WithTokens)
	withAuth.Do(t, "POST", "/v1/explain", `{"service":"tts"}`).Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
	withAuth.Do(t, "POST", "/v1/explain", `{"service":"tts"}`, "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	if got := withAuth.Do(t, "POST", "/v1/explain", `{"service":"tts"}`, "Authorization", "Bearer root-token"); got.Status != http.StatusOK {
		t.Error(got.Status, got.Text)
	}
}

package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

func node(id string) cell.NodeState {
	return cell.NodeState{
		Node:  freeslot.Node{ID: id, MaxConcurrency: 4, Services: []freeslot.Service{{Name: "tts"}}},
		Epoch: "e1", Status: freeslot.StatusOnline, Used: 1, Revision: 7, RegisteredAtMS: 10, LastHeartbeatMS: 20,
		Resources: json.RawMessage(`{"cpu":0.5}`),
	}
}

func TestNodes(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	if got := f.Do(t, "GET", "/v1/nodes", ""); strings.TrimSpace(got.Text) != `{"nodes":[]}` {
		t.Error("without nodes:", got.Text)
	}
	for _, i := range []int{3, 1, 2} {
		id := fmt.Sprintf("node-%d", i)
		f.Nodes.ByID[id] = node(id)
	}
	ids := func(got apitest.Response) (out []string) {
		for _, n := range got.Body["nodes"].([]any) {
			out = append(out, n.(map[string]any)["node_id"].(string))
		}
		return out
	}
	got := f.Do(t, "GET", "/v1/nodes?limit=2", "")
	if s := fmt.Sprint(ids(got)); s != "[node-1 node-2]" || got.Body["cursor"] != "node-2" {
		t.Error(got.Text)
	}
	got = f.Do(t, "GET", "/v1/nodes?limit=2&cursor=node-2", "")
	if s := fmt.Sprint(ids(got)); s != "[node-3]" || got.Body["cursor"] != nil {
		t.Error(got.Text)
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Nodes.ByID["node-1"] = node("node-1")
	got := f.Do(t, "GET", "/v1/nodes/node-1", "")
	want := `{"node_id":"node-1","max_concurrency":4,"installed_services":[{"name":"tts"}],"capabilities":{},"status":"online","epoch":"e1","used":1,"version":7,"registered_at_ms":10,"last_heartbeat_ms":20,"resources":{"cpu":0.5}}`
	if got.Status != http.StatusOK || strings.TrimSpace(got.Text) != want {
		t.Errorf("%d %s; want got.Status == http.StatusOK, strings.TrimSpace(got.Text) == %v", got.Status, got.Text, want)
	}
	f.Do(t, "GET", "/v1/nodes/node-2", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "GET", "/v1/nodes/node%3A2", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Do(t, "GET", "/v1/nodes/node-1?checked=maybe", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}

// TestSilentNodes: a node whose agent has fallen silent is marked. A node that was heard when its
// cell last answered is not.
func TestSilentNodes(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Nodes.OnChecked = func(_ context.Context, id string) (cell.NodeState, bool, bool) { return node(id), true, true }
	for id, seenAt := range map[string]time.Duration{"alive": -time.Second, "silent": -time.Second - 1, "unheard": 0} {
		f.Nodes.ByID[id] = node(id)
		state := node(id)
		n := selection.NewNode(selection.Compile(&state.Node), 0)
		if seenAt != 0 {
			n.Seen(int64(seenAt))
		}
		f.Nodes.Live = append(f.Nodes.Live, n)
	}
	check := func(want string) {
		t.Helper()
		var got []string
		for _, n := range f.Do(t, "GET", "/v1/nodes", "").Body["nodes"].([]any) {
			if id := fmt.Sprint(apitest.At(n, "node_id")); apitest.At(n, "silent") == true {
				got = append(got, id)
			} else if one := f.Do(t, "GET", "/v1/nodes/"+id, ""); one.Body["silent"] != nil {
				t.Error(one.Text)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("silent: %v, expected %s", got, want)
		}
	}
	check("[silent unheard]")
	for _, path := range []string{"/v1/nodes/silent", "/v1/nodes/silent?checked=true"} {
		if got := f.Do(t, "GET", path, ""); got.Body["silent"] != true || got.Body["status"] != "online" {
			t.Error(got.Text)
		}
	}
	f.Nodes.Freshness.Cells = []cache.CellHealth{{Synced: true, Age: 1}}
	check("[silent unheard]")
	f.Nodes.Freshness.Cells = []cache.CellHealth{{Synced: true, Unreachable: true, Age: 1}}
	check("[unheard]")
	f.Nodes.Freshness.Cells = []cache.CellHealth{{Synced: true, Stale: true, Age: 1}}
	check("[unheard]")
}

func TestCheckedNode(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	fresh, found := true, true
	f.Nodes.OnChecked = func(_ context.Context, id string) (cell.NodeState, bool, bool) { return node(id), found, fresh }
	if got := f.Do(t, "GET", "/v1/nodes/node-9?checked=true", ""); got.Body["checked"] != "fresh" {
		t.Error(got.Text)
	}
	fresh = false
	if got := f.Do(t, "GET", "/v1/nodes/node-9?checked=true", ""); got.Body["checked"] != "timeout" {
		t.Error(got.Text)
	}
	found = false
	got := f.Do(t, "GET", "/v1/nodes/node-9?checked=true", "")
	got.Refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	if got.Body["retry_after_ms"] != 1000.0 {
		t.Errorf("a node of which nothing is known: %s; want retry_after_ms 1000", got.Text)
	}
	fresh = true
	f.Do(t, "GET", "/v1/nodes/node-9?checked=true", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
}

// TestNodeFilters: a listing has the nodes for which everything holds that the caller asks.
func TestNodeFilters(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Nodes.Rules = selection.Config{Enabled: true, Pools: selection.Pools{{ID: "eu", Labels: map[string]string{"zone": "eu"}}}}
	add := func(id string, seenAt time.Duration, change func(*cell.NodeState)) {
		state := node(id)
		state.Node.Services[0].Version, state.Node.Labels = "1.4.0", map[string]string{"zone": "eu", "vram": "80"}
		state.Node.Features = map[string]bool{"emotion": true}
		state.Resources = json.RawMessage(`{"cpu_usage":0.2,"metrics":{"cpu":{"usage":0.2},"disk":{"path":"/"}}}`)
		change(&state)
		f.Nodes.ByID[id] = state
		live := selection.NewNode(selection.Compile(&state.Node), 0)
		live.Seen(int64(seenAt))
		f.Nodes.Live = append(f.Nodes.Live, live)
	}
	add("a", -time.Millisecond, func(*cell.NodeState) {})
	add("b", -3*time.Second, func(n *cell.NodeState) {
		n.Status, n.Node.Services[0].Version = freeslot.StatusDraining, "2.0.0"
		n.Resources = json.RawMessage(`{"metrics":{"cpu":{"usage":0.5}}}`)
	})
	add("c", -time.Second, func(n *cell.NodeState) {
		n.Node.Labels, n.Node.Features, n.Resources = map[string]string{"vram": "24"}, map[string]bool{"emotion": false}, nil
	})
	for query, want := range map[string]string{
		"":                        "a b c",
		"status=online":           "a c",
		"status=drained":          "",
		"service=tts":             "a b c",
		"service=tts%40%3C2":      "a c",
		"service=tts&service=asr": "",
		"pool=eu":                 "a b",
		"pool=none":               "",
		"feature=emotion":         "a b",
		"label_rule=zone+exists":  "a b",
		"label_rule=zone+in+us,eu&label_rule=vram+ge+40": "a b",
		"label_rule=zone+not_in+eu":                      "c",
		"figure=cpu.usage+%3C+0.5":                       "a",
		"figure=cpu.usage%3C%3D0.50":                     "a b",
		"figure=cpu.usage+!%3D+0.5":                      "a c",
		"figure=disk.path+%3D%3D+/":                      "a",
		"max_age_ms=1":                                   "a",
		"max_age_ms=2999":                                "a c",
		"max_age_ms=3000":                                "a b c",
		"pool=eu&status=online&figure=cpu.usage%3C1":     "a",
	} {
		got := f.Do(t, "GET", "/v1/nodes?"+query, "")
		listed, ok := got.Body["nodes"].([]any)
		var ids []string
		for _, n := range listed {
			ids = append(ids, fmt.Sprint(apitest.At(n, "node_id")))
		}
		if !ok {
			t.Error(query, got.Text)
		}
		if strings.Join(ids, " ") != want {
			t.Errorf("%s: got %v, want %s", query, ids, want)
		}
	}
	if got := f.Do(t, "GET", "/v1/nodes?pool=eu&limit=1", ""); got.Body["cursor"] != "a" {
		t.Error("the filter does not come before the limit:", got.Text)
	}
	looks := f.Nodes.Looks.Load()
	if got := f.Do(t, "GET", "/v1/nodes?service=tts&max_age_ms=3000&limit=1", ""); got.Body["cursor"] != "a" {
		t.Error(got.Text)
	}
	// Two for the age of a and b, two for their profiles, and one to show a.
	if n := f.Nodes.Looks.Load() - looks; n != 5 {
		t.Errorf("a page of one node takes %d looks", n)
	}
	if got := f.Do(t, "GET", "/v1/nodes?pool=eu&limit=2", ""); got.Body["cursor"] != nil {
		t.Error("a page with all that fit goes on:", got.Text)
	}
	f.Nodes.Freshness.Cells = []cache.CellHealth{{Synced: true, Unreachable: true, Age: 4 * time.Second}}
	if got := f.Do(t, "GET", "/v1/nodes?max_age_ms=2999", ""); len(got.Body["nodes"].([]any)) != 3 {
		t.Error("an outage of the cell makes nodes old:", got.Text)
	}
	for query, field := range map[string]string{
		"status=busy":                               "status",
		"pool=a:b":                                  "pool",
		"service=ok&service=tts%40%3Clow":           "service[1]",
		"feature=a+b":                               "feature[0]",
		"label_rule=zone":                           "label_rule[0]",
		"label_rule=zone+like+eu":                   "label_rule[0].operator",
		"figure=cpu.usage":                          "figure[0]",
		"figure=cpu.usage%3C1&figure=a<1":           "figure[1]",
		"figure=cpu.usage%3Clow":                    "figure[0]",
		"max_age_ms=0":                              "max_age_ms",
		"max_age_ms=soon":                           "max_age_ms",
		"max_age_ms=9999999999":                     "max_age_ms",
		strings.Repeat("figure=cpu.usage%3C1&", 33): "figure",
	} {
		got := f.Do(t, "GET", "/v1/nodes?"+query, "")
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if got.Body["field"] != field {
			t.Errorf(`%s: %s; want got.Body["field"] == %v`, query, got.Text, field)
		}
	}
}

// links are how nodes are connected. A ctx that ends before they answer leaves all out.
type links struct {
	byNode map[string]cell.Link
	asked  []string
	hangs  bool
}

func (l *links) Links(ctx context.Context, nodes []string) map[string]cell.Link {
	l.asked = nodes
	if l.hangs {
		<-ctx.Done()
		return nil
	}
	return l.byNode
}

func TestNodeConnections(t *testing.T) {
	t.Parallel()
	l := &links{byNode: map[string]cell.Link{"node-2": {Replica: "r-1", RoundTrip: 1234 * time.Microsecond, Version: "0.4.0", Token: "gpu"}}}
	f := apitest.New(t, api.Config{LinkTimeout: time.Millisecond}, func(d *api.Deps) { d.Links = l })
	for _, id := range []string{"node-1", "node-2", "node-3"} {
		f.Nodes.ByID[id] = node(id)
	}
	const want = "map[replica:r-1 round_trip_ms:1.234 token:gpu version:0.4.0]"
	shown := func(got apitest.Response) (out []string) {
		for _, n := range got.Body["nodes"].([]any) {
			out = append(out, fmt.Sprint(n.(map[string]any)["connection"]))
		}
		return out
	}
	if got := shown(f.Do(t, "GET", "/v1/nodes?limit=2", "")); fmt.Sprint(got) != "[<nil> "+want+"]" {
		t.Errorf("the page has %s", got)
	}
	if fmt.Sprint(l.asked) != "[node-1 node-2]" {
		t.Errorf("the store is asked about %s, which is not the page", l.asked)
	}
	if got := shown(f.Do(t, "GET", "/v1/nodes?limit=3&connections=false", "")); fmt.Sprint(got) != "[<nil> <nil> <nil>]" || len(l.asked) != 2 {
		t.Errorf("a page without connections has %s, and the store is asked about %s; want nothing new", got, l.asked)
	}
	if got := f.Do(t, "GET", "/v1/nodes/node-2", ""); fmt.Sprint(got.Body["connection"]) != want {
		t.Error(got.Text)
	}
	l.hangs = true
	if got := f.Do(t, "GET", "/v1/nodes/node-2", ""); got.Status != http.StatusOK || got.Body["connection"] != nil {
		t.Errorf("while the store hangs: %d %s", got.Status, got.Text)
	}
	if got := shown(f.Do(t, "GET", "/v1/nodes", "")); fmt.Sprint(got) != "[<nil> <nil> <nil>]" {
		t.Errorf("while the store hangs: %s", got)
	}
}

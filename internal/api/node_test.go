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
	"github.com/freeslot/freeslot/internal/api/apitest"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
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
		t.Errorf("%d %s", got.Status, got.Text)
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
	f.Do(t, "GET", "/v1/nodes/node-9?checked=true", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
}

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
	f := setup(t, api.Config{})
	if got := f.do(t, "GET", "/v1/nodes", ""); strings.TrimSpace(got.text) != `{"nodes":[]}` {
		t.Error("without nodes:", got.text)
	}
	for _, i := range []int{3, 1, 2} {
		id := fmt.Sprintf("node-%d", i)
		f.nodes.nodes[id] = node(id)
	}
	ids := func(got response) (out []string) {
		for _, n := range got.body["nodes"].([]any) {
			out = append(out, n.(map[string]any)["node_id"].(string))
		}
		return out
	}
	got := f.do(t, "GET", "/v1/nodes?limit=2", "")
	if s := fmt.Sprint(ids(got)); s != "[node-1 node-2]" || got.body["cursor"] != "node-2" {
		t.Error(got.text)
	}
	got = f.do(t, "GET", "/v1/nodes?limit=2&cursor=node-2", "")
	if s := fmt.Sprint(ids(got)); s != "[node-3]" || got.body["cursor"] != nil {
		t.Error(got.text)
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{})
	f.nodes.nodes["node-1"] = node("node-1")
	got := f.do(t, "GET", "/v1/nodes/node-1", "")
	want := `{"node_id":"node-1","max_concurrency":4,"installed_services":[{"name":"tts"}],"capabilities":{},"status":"online","epoch":"e1","used":1,"version":7,"registered_at_ms":10,"last_heartbeat_ms":20,"resources":{"cpu":0.5}}`
	if got.status != http.StatusOK || strings.TrimSpace(got.text) != want {
		t.Errorf("%d %s", got.status, got.text)
	}
	f.do(t, "GET", "/v1/nodes/node-2", "").refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.do(t, "GET", "/v1/nodes/node%3A2", "").refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.do(t, "GET", "/v1/nodes/node-1?checked=maybe", "").refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}

// TestSilentNodes: a node whose agent is not heard of any more says so; one that was heard when
// its cell last answered does not.
func TestSilentNodes(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{})
	f.nodes.checked = func(_ context.Context, id string) (cell.NodeState, bool, bool) { return node(id), true, true }
	for id, seenAt := range map[string]time.Duration{"alive": -time.Second, "silent": -time.Second - 1, "unheard": 0} {
		f.nodes.nodes[id] = node(id)
		state := node(id)
		n := selection.NewNode(selection.Compile(&state.Node), 0)
		if seenAt != 0 {
			n.Seen(int64(seenAt))
		}
		f.nodes.live = append(f.nodes.live, n)
	}
	check := func(want string) {
		t.Helper()
		var got []string
		for _, n := range f.do(t, "GET", "/v1/nodes", "").body["nodes"].([]any) {
			if id := field(n, "node_id"); at(n, "silent") == true {
				got = append(got, id)
			} else if one := f.do(t, "GET", "/v1/nodes/"+id, ""); one.body["silent"] != nil {
				t.Error(one.text)
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("silent: %v, expected %s", got, want)
		}
	}
	check("[silent unheard]")
	for _, path := range []string{"/v1/nodes/silent", "/v1/nodes/silent?checked=true"} {
		if got := f.do(t, "GET", path, ""); got.body["silent"] != true || got.body["status"] != "online" {
			t.Error(got.text)
		}
	}
	f.nodes.health.Cells = []cache.CellHealth{{Synced: true, Age: 1}}
	check("[silent unheard]")
	f.nodes.health.Cells = []cache.CellHealth{{Synced: true, Unreachable: true, Age: 1}}
	check("[unheard]")
	f.nodes.health.Cells = []cache.CellHealth{{Synced: true, Stale: true, Age: 1}}
	check("[unheard]")
}

func TestCheckedNode(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{})
	fresh, found := true, true
	f.nodes.checked = func(_ context.Context, id string) (cell.NodeState, bool, bool) { return node(id), found, fresh }
	if got := f.do(t, "GET", "/v1/nodes/node-9?checked=true", ""); got.body["checked"] != "fresh" {
		t.Error(got.text)
	}
	fresh = false
	if got := f.do(t, "GET", "/v1/nodes/node-9?checked=true", ""); got.body["checked"] != "timeout" {
		t.Error(got.text)
	}
	found = false
	f.do(t, "GET", "/v1/nodes/node-9?checked=true", "").refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
}

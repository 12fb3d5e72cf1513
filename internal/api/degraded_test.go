package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cache"
	"github.com/freeslot/freeslot/internal/cell"
)

// TestDegraded: while the store does not answer, nodes are shown as last known and
// say so; those of a cell that answers do not.
func TestDegraded(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{})
	inCell := [2]string{}
	for i := 0; inCell[0] == "" || inCell[1] == ""; i++ {
		id := fmt.Sprintf("node-%d", i)
		inCell[cell.NodeCell(id, 2)] = id
	}
	for _, id := range inCell {
		f.nodes.nodes[id] = node(id)
	}
	f.nodes.health.Cells = make([]cache.CellHealth, 2)
	f.nodes.health.Cells[0].Age = time.Second
	for _, path := range []string{"/v1/nodes", "/v1/nodes/" + inCell[0], "/v1/nodes/" + inCell[1]} {
		if got := f.do(t, "GET", path, ""); strings.Contains(got.text, "degraded") || strings.Contains(got.text, "age_ms") {
			t.Errorf("%s is marked in good times: %s", path, got.text)
		}
	}
	f.nodes.health.Cells[1] = cache.CellHealth{Synced: true, Stale: true, Age: 4500 * time.Millisecond}
	page := f.do(t, "GET", "/v1/nodes", "")
	if page.body["degraded"] != true || page.body["age_ms"] != 4500.0 {
		t.Error(page.text)
	}
	for _, n := range page.body["nodes"].([]any) {
		n := n.(map[string]any)
		if (n["degraded"] == true) != (n["node_id"] == inCell[1]) || (n["age_ms"] == 4500.0) != (n["node_id"] == inCell[1]) {
			t.Error(n)
		}
	}
	if got := f.do(t, "GET", "/v1/nodes/"+inCell[1], ""); got.body["degraded"] != true || got.body["age_ms"] != 4500.0 {
		t.Error(got.text)
	}
	if got := f.do(t, "GET", "/v1/nodes/"+inCell[0], ""); got.body["degraded"] != nil {
		t.Error(got.text)
	}
	// The store has just confirmed this one.
	fresh := true
	f.nodes.checked = func(_ context.Context, id string) (cell.NodeState, bool, bool) { return node(id), true, fresh }
	if got := f.do(t, "GET", "/v1/nodes/"+inCell[1]+"?checked=true", ""); got.body["checked"] != "fresh" || got.body["degraded"] != nil {
		t.Error(got.text)
	}
	fresh = false
	if got := f.do(t, "GET", "/v1/nodes/"+inCell[1]+"?checked=true", ""); got.body["checked"] != "timeout" || got.body["degraded"] != true {
		t.Error(got.text)
	}
}

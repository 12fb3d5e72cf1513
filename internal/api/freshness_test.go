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
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// TestDegraded: while the store does not answer, nodes have their last known state and a mark.
// Nodes of a cell that answers have no mark.
func TestDegraded(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	inCell := [2]string{}
	for i := 0; inCell[0] == "" || inCell[1] == ""; i++ {
		id := fmt.Sprintf("node-%d", i)
		inCell[cell.NodeCell(id, 2)] = id
	}
	for _, id := range inCell {
		f.Nodes.ByID[id] = node(id)
	}
	f.Nodes.Freshness.Cells = make([]cache.CellHealth, 2)
	f.Nodes.Freshness.Cells[0].Age = time.Second
	for _, path := range []string{"/v1/nodes", "/v1/nodes/" + inCell[0], "/v1/nodes/" + inCell[1]} {
		if got := f.Do(t, "GET", path, ""); strings.Contains(got.Text, "degraded") || strings.Contains(got.Text, "age_ms") {
			t.Errorf("%s is marked in good times: %s", path, got.Text)
		}
	}
	f.Nodes.Freshness.Cells[1] = cache.CellHealth{Synced: true, Stale: true, Age: 4500 * time.Millisecond}
	page := f.Do(t, "GET", "/v1/nodes", "")
	if page.Body["degraded"] != true || page.Body["age_ms"] != 4500.0 {
		t.Error(page.Text)
	}
	for _, n := range page.Body["nodes"].([]any) {
		n := n.(map[string]any)
		if (n["degraded"] == true) != (n["node_id"] == inCell[1]) || (n["age_ms"] == 4500.0) != (n["node_id"] == inCell[1]) {
			t.Error(n)
		}
	}
	if got := f.Do(t, "GET", "/v1/nodes/"+inCell[1], ""); got.Body["degraded"] != true || got.Body["age_ms"] != 4500.0 {
		t.Error(got.Text)
	}
	if got := f.Do(t, "GET", "/v1/nodes/"+inCell[0], ""); got.Body["degraded"] != nil {
		t.Error(got.Text)
	}
	// The store has just confirmed this one.
	fresh := true
	f.Nodes.OnChecked = func(_ context.Context, id string) (cell.NodeState, bool, bool) { return node(id), true, fresh }
	if got := f.Do(t, "GET", "/v1/nodes/"+inCell[1]+"?checked=true", ""); got.Body["checked"] != "fresh" || got.Body["degraded"] != nil {
		t.Error(got.Text)
	}
	fresh = false
	if got := f.Do(t, "GET", "/v1/nodes/"+inCell[1]+"?checked=true", ""); got.Body["checked"] != "timeout" || got.Body["degraded"] != true {
		t.Error(got.Text)
	}
}

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// running is a node with slots in use, whose jobs had run for so long at 100 s; less than 0 says
// nothing of that. It was heard at 160 s.
func running(id string, used, jobs int, ran time.Duration) cell.NodeState {
	n := node(id)
	n.Used, n.LastHeartbeatMS = used, 160_000
	n.Resources = json.RawMessage(fmt.Sprintf(`{"at_ms":100000,"current_jobs":%d,"run_ms":%d}`, jobs, ran.Milliseconds()))
	if ran < 0 {
		n.Resources = json.RawMessage(`{"at_ms":100000}`)
	}
	return n
}

func with(n cell.NodeState, status freeslot.Status) cell.NodeState {
	n.Status = status
	return n
}

// removalOrder are nodes in the order of removal.
func removalOrder() []cell.NodeState {
	imported := running("a-imported", 0, 0, 0)
	imported.Epoch = cell.ImportEpoch
	return []cell.NodeState{
		imported, running("z-silent", 4, 4, time.Hour),
		with(running("z-drained", 0, 0, 0), freeslot.StatusDrained), with(running("a-draining", 2, 2, time.Minute), freeslot.StatusDraining),
		running("b-idle", 0, 9, time.Hour), // what its jobs have run does not count: they have ended
		running("c-idle", 0, 0, -1),
		running("y-new", 1, 0, 0), // its job began after its last figures
		running("x-young", 1, 1, time.Second), running("a-old", 1, 1, time.Minute), running("b-old", 1, 1, time.Minute),
		running("a-unknown", 1, 1, -1),
		// At 160 s their jobs have run 50 s + 60 s, and 40 s + 2 * 60 s.
		running("y-one", 2, 1, 50*time.Second), running("x-two", 2, 2, 40*time.Second),
		running("a-busy", 4, 1, 0),
	}
}

func orderServer(t *testing.T) *apitest.Server {
	t.Helper()
	f := apitest.New(t, api.Config{})
	for _, n := range removalOrder() {
		silence := time.Duration(0)
		if n.Node.ID == "z-silent" {
			silence = f.Nodes.SilenceLimit() + 1
		}
		add(f.Nodes, n, silence)
	}
	return f
}

func nodeIDs(r apitest.Response) (ids []string) {
	nodes, _ := r.Body["nodes"].([]any)
	for _, n := range nodes {
		ids = append(ids, n.(map[string]any)["node_id"].(string))
	}
	return ids
}

// TestOrderOfRemoval: nodes without an agent come first, then those that get no jobs; then the
// fewest slots in use, then the shortest time that the jobs have run, then the id decide.
func TestOrderOfRemoval(t *testing.T) {
	t.Parallel()
	f := orderServer(t)
	var want []string
	for _, n := range removalOrder() {
		want = append(want, n.Node.ID)
	}
	if got := nodeIDs(f.Do(t, "GET", "/v1/nodes?order=removal", "")); !slices.Equal(got, want) {
		t.Errorf("by removal\n%v; want\n%v", got, want)
	}
	if got := nodeIDs(f.Do(t, "GET", "/v1/nodes?order=removal&status=online&limit=3", "")); !slices.Equal(got, []string{"a-imported", "z-silent", "b-idle"}) {
		t.Errorf("of those that are online %v; want the filter to hold", got)
	}
	byID := slices.Sorted(slices.Values(want))
	for _, query := range []string{"", "?order=id"} {
		if got := nodeIDs(f.Do(t, "GET", "/v1/nodes"+query, "")); !slices.Equal(got, byID) {
			t.Errorf("%q lists %v; want %v", query, got, byID)
		}
	}
}

// TestPagesOfRemoval: whatever the size of the pages, each node comes once and in order, though
// time goes on between the pages: nodes are heard again, and another one comes.
func TestPagesOfRemoval(t *testing.T) {
	t.Parallel()
	for size := 1; size <= len(removalOrder())+1; size++ {
		f := orderServer(t)
		var got []string
		for path := fmt.Sprintf("/v1/nodes?order=removal&limit=%d", size); ; {
			page := f.Do(t, "GET", path, "")
			got = append(got, nodeIDs(page)...)
			cursor, more := page.Body["cursor"].(string)
			if !more {
				break
			}
			if len(got) > len(removalOrder()) {
				t.Fatalf("pages of %d do not end: %v", size, got)
			}
			path = fmt.Sprintf("/v1/nodes?order=removal&limit=%d&cursor=%s", size, cursor)
			for id, n := range f.Nodes.ByID {
				n.LastHeartbeatMS += 3_000
				f.Nodes.ByID[id] = n
			}
			add(f.Nodes, running("0-later", 0, 0, 0), 0)
		}
		got = slices.DeleteFunc(got, func(id string) bool { return id == "0-later" })
		var want []string
		for _, n := range removalOrder() {
			want = append(want, n.Node.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d list\n%v; want\n%v", size, got, want)
		}
	}
}

// TestRemovalOfAnyFleet: with any nodes, pages list what one page lists.
func TestRemovalOfAnyFleet(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	f := apitest.New(t, api.Config{})
	for i := range 200 {
		n := running(fmt.Sprintf("n%d", r.IntN(1000)), r.IntN(4), r.IntN(4), time.Duration(r.IntN(4)-1)*time.Minute)
		if i%5 == 0 {
			n.Status = freeslot.StatusDrained
		}
		f.Nodes.ByID[n.Node.ID] = n
	}
	whole := nodeIDs(f.Do(t, "GET", "/v1/nodes?order=removal", ""))
	if len(whole) != len(f.Nodes.ByID) {
		t.Fatalf("%d nodes; want %d", len(whole), len(f.Nodes.ByID))
	}
	var paged []string
	for cursor := ""; ; {
		page := f.Do(t, "GET", "/v1/nodes?order=removal&limit=7&cursor="+cursor, "")
		paged = append(paged, nodeIDs(page)...)
		next, more := page.Body["cursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	if !slices.Equal(paged, whole) {
		t.Errorf("pages list\n%v; want\n%v", paged, whole)
	}
}

// TestCursorsOfOrders: a cursor is for the order that it came from.
func TestCursorsOfOrders(t *testing.T) {
	t.Parallel()
	f := orderServer(t)
	removal, _ := f.Do(t, "GET", "/v1/nodes?order=removal&limit=1", "").Body["cursor"].(string)
	for _, query := range []string{
		"cursor=" + removal, "order=id&cursor=" + removal, "order=removal&cursor=a-old", "order=removal&cursor=removal:1:2:3",
		"order=removal&cursor=removal:1:2:3:x:a", "order=removal&cursor=removal:1:2:-3:4:a", "order=removal&cursor=removal:1:2:3:4:",
	} {
		got := f.Do(t, "GET", "/v1/nodes?"+query, "")
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if got.Body["field"] != "cursor" || !strings.Contains(got.Text, "is not from a listing by order=") {
			t.Errorf("%s: %s; want the field and what was expected", query, got.Text)
		}
	}
	f.Do(t, "GET", "/v1/nodes?order=age", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}

// TestFiguresOfRemoval: figures that an agent cannot mean are no figures, and the longest cursor is
// taken.
func TestFiguresOfRemoval(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	long := strings.Repeat("n", freeslot.MaxNameLength-1)
	for i, resources := range []string{
		`{"at_ms":100000,"current_jobs":1,"run_ms":5}`, `{"at_ms":100000,"current_jobs":1,"run_ms":-5}`,
		`{"at_ms":100000,"current_jobs":99999999999,"run_ms":5}`, `{"at_ms":-9223372036854775808,"current_jobs":9,"run_ms":5}`,
		`{"at_ms":100000,"current_jobs":1,"run_ms":9223372036854775807}`, `7`, `{"at_ms":100000,"current_jobs":1,"run_ms":0.5}`,
	} {
		n := running(fmt.Sprintf("%s%d", long, 9-i), 65536, 1, 0)
		n.Resources, n.LastHeartbeatMS = json.RawMessage(resources), 4102444800000
		f.Nodes.ByID[n.Node.ID] = n
	}
	var got []string
	for cursor := ""; ; {
		page := f.Do(t, "GET", "/v1/nodes?order=removal&limit=1&cursor="+cursor, "")
		got = append(got, nodeIDs(page)...)
		next, more := page.Body["cursor"].(string)
		if !more {
			break
		}
		cursor = next
	}
	want := append([]string{long + "9"}, slices.Sorted(maps.Keys(f.Nodes.ByID))[:6]...)
	if !slices.Equal(got, want) {
		t.Errorf("listed %v; want %v: the one with figures, then the others by id", got, want)
	}
}

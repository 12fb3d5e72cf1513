package importer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/script"
	"github.com/freeslot/freeslot/internal/testing/redistest"
	"github.com/freeslot/freeslot/internal/testing/redistest/acltest"
)

func TestMain(m *testing.M) { acltest.Main(m, script.RoleImporter, cell.Access) }

// importing is a Redis as the target of an import.
type importing struct {
	cell   *cell.Cell
	client rueidis.Client
}

func newImporting(t *testing.T) *importing {
	t.Helper()
	redis := redistest.Shared(t)
	im := &importing{client: redis.Client(t)}
	var err error
	im.cell, err = cell.New(cell.Config{Layout: cell.Layout{Prefix: redis.Prefix(t)}}, im.client, zap.NewNop(), nil)
	must(t, err)
	return im
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func listed(id string, slots int) string {
	return fmt.Sprintf(`{"node_id": %q, "resources": {"max_concurrency": %d}, "installed_services": ["tts"], "pool_ids": [1]}`, id, slots)
}

func profile(id string, slots int) freeslot.Node {
	return freeslot.Node{ID: id, MaxConcurrency: slots, Services: []freeslot.Service{{Name: "tts"}}, Pools: []string{"1"}}
}

// expectSame compares lines in order.
func expectSame(t *testing.T, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAfterOutage: agents that are silent because Redis was away keep their nodes.
func TestAfterOutage(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	epoch := cell.NewEpoch()
	for _, id := range []string{"back", "gone"} {
		_, err := im.cell.Register(t.Context(), profile(id, 2), epoch)
		must(t, err)
	}
	entries, err := Read(strings.NewReader("[" + listed("back", 3) + "," + listed("gone", 3) + "," + listed("new", 1) + "]"))
	must(t, err)
	told := 0
	imp := &importer{cells: cell.NewSet(im.cell), Options: Options{HeartbeatLimit: time.Minute}}
	for _, id := range []string{"back", "gone"} { // as if their last heartbeats were of long ago
		must(t, im.client.Do(t.Context(), im.client.B().Set().Key(im.cell.Layout().Load(id)).Value("1000000000000").Build()).Error())
	}
	imp.Waits = func(nodes int) {
		told += nodes
		_, err := im.cell.Heartbeat(t.Context(), cell.Heartbeat{Node: "back", Epoch: epoch})
		must(t, err)
	}
	results, err := imp.run(t.Context(), entries)
	must(t, err)
	lines := make([]string, 0, len(results))
	for _, r := range results {
		lines = append(lines, r.NodeID+" "+r.Result)
	}
	expectSame(t, []string{"back left", "gone copied", "new copied"}, lines)
	if told != 2 || results[0].Reason != "its agent is alive" {
		t.Errorf("warned of %d nodes; %+v", told, results[0])
	}
}

// TestVerifies: the report shows the nodes in Redis, not those that were sent.
func TestVerifies(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	entries, err := Read(strings.NewReader("[" + listed("edited", 1) + "," + listed("lost", 1) + "," + listed("taken", 1) + "," + listed("broken", 1) + "]"))
	must(t, err)
	imp := &importer{cells: cell.NewSet(im.cell)}
	results := make([]Result, len(entries))
	must(t, imp.each(t.Context(), entries, results, imp.copy))
	edit := func(id, field, value string) {
		must(t, im.client.Do(t.Context(), im.client.B().Hset().Key(im.cell.Layout().Node(id)).FieldValue().FieldValue(field, value).Build()).Error())
	}
	edit("edited", "max_concurrency", "9")
	edit("broken", "labels", "[")
	must(t, im.client.Do(t.Context(), im.client.B().Del().Key(im.cell.Layout().Node("lost")).Build()).Error())
	_, err = im.cell.Register(t.Context(), profile("taken", 7), cell.NewEpoch())
	must(t, err)
	must(t, imp.each(t.Context(), entries, results, imp.verify))
	var got []string
	for _, r := range results {
		got = append(got, r.Result+" "+r.Why())
	}
	want := []string{
		"differs max_concurrency is 1 in the list, 9 in Redis",
		"differs node is known in the list, absent in Redis",
		"left an agent has taken it over; max_concurrency is 1 in the list, 7 in Redis",
	}
	expectSame(t, want, got[:3])
	if !strings.HasPrefix(got[3], "differs node is readable in the list, node broken: field labels") {
		t.Error(got[3])
	}
	if err := Failure(results, false); err == nil || err.Error() != "4 of 4 nodes are not in Redis as the list has them: 1 left, 3 differs" {
		t.Error(err)
	}
}

// TestLeavesWhatHasChanged: agents come, and send heartbeats, between the look at a node and its
// copy.
func TestLeavesWhatHasChanged(t *testing.T) {
	t.Parallel()
	im := newImporting(t)
	entries, err := Read(strings.NewReader("[" + listed("new", 2) + "," + listed("back", 2) + "," + listed("busy", 2) + "," + listed("quiet", 2) + "]"))
	must(t, err)
	must(t, im.cell.Start(t.Context()))
	t.Cleanup(func() { must(t, im.cell.Stop(context.Background())) })
	imp := &importer{cells: cell.NewSet(im.cell), Options: Options{HeartbeatLimit: -time.Hour}, patient: true} // all agents are silent
	epochs := make(map[string]cell.Epoch)
	for _, id := range []string{"back", "busy", "quiet"} {
		epochs[id] = cell.NewEpoch()
		_, err := im.cell.Register(t.Context(), profile(id, 1), epochs[id])
		must(t, err)
		_, err = im.cell.Heartbeat(t.Context(), cell.Heartbeat{Node: id, Epoch: epochs[id], Status: freeslot.StatusOnline})
		must(t, err)
	}
	results := make([]Result, len(entries))
	copyLate := func(ctx context.Context, e *Entry, r *Result, f *found) error {
		switch id := e.node.ID; id {
		case "new":
			_, err := im.cell.Register(ctx, profile(id, 1), cell.NewEpoch())
			must(t, err)
		case "back":
			f.LastHeartbeatMS-- // it was heard since
		case "busy":
			s := cell.Submission{JobID: im.cell.NewJobID(), Tenant: "t", Job: &freeslot.Job{Service: "echo"}, Candidates: []string{id}}
			p, err := im.cell.Submit(ctx, s)
			must(t, err)
			if !p.Assigned {
				t.Fatal("the node takes no job")
			}
		}
		return imp.copy(ctx, e, r, f)
	}
	must(t, imp.each(t.Context(), entries, results, copyLate))
	var got []string
	for _, r := range results {
		got = append(got, r.Result+" "+r.Reason)
	}
	expectSame(t, []string{"left an agent has just registered it", "left its agent has just come back", "left its agent has just come back", "copied "}, got)
	for _, id := range []string{"back", "busy"} {
		if _, err := im.cell.Heartbeat(t.Context(), cell.Heartbeat{Node: id, Epoch: epochs[id], Status: freeslot.StatusOnline}); err != nil {
			t.Errorf("the agent of %s: %v", id, err)
		}
	}
}

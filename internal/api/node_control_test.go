package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// fakeControl records its calls.
type fakeControl struct {
	calls []string
	jobs  []string // of a node that is removed
	err   error
}

func (f *fakeControl) call(ctx context.Context, parts ...any) error {
	if _, ok := ctx.Deadline(); !ok {
		return fmt.Errorf("%v has no deadline", parts)
	}
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintln(parts...)))
	return f.err
}

func (f *fakeControl) Drain(ctx context.Context, node string) error {
	return f.call(ctx, "drain", node)
}

func (f *fakeControl) Undrain(ctx context.Context, node string) error {
	return f.call(ctx, "undrain", node)
}

func (f *fakeControl) Remove(ctx context.Context, node string, epoch cell.Epoch) ([]string, error) {
	return f.jobs, f.call(ctx, "remove", node, epoch)
}

func (f *fakeControl) use(d *api.Deps) { d.Control = f }

// changes are the calls that change a node.
var changes = []struct{ method, action string }{
	{"POST", "/drain"}, {"POST", "/undrain"}, {"DELETE", ""},
}

// add gives the fleet a node whose agent was heard so long ago.
func add(f *apitest.Nodes, state cell.NodeState, silence time.Duration) {
	f.ByID[state.Node.ID] = state
	n := selection.NewNode(selection.Compile(&state.Node), 0)
	n.Seen(-int64(silence))
	f.Live = append(f.Live, n)
}

func TestNodeControl(t *testing.T) {
	t.Parallel()
	control := &fakeControl{}
	f := apitest.New(t, api.Config{}, control.use)
	add(f.Nodes, node("alive"), f.Nodes.SilenceLimit())
	add(f.Nodes, node("silent"), f.Nodes.SilenceLimit()+1)
	imported := node("imported")
	imported.Epoch = cell.ImportEpoch
	add(f.Nodes, imported, 1)
	for _, c := range []struct {
		method, path, call, answer string
		jobs                       []string
	}{
		{method: "POST", path: "alive/drain", call: "drain alive", answer: `{"node_id":"alive","status":"drained"}`},
		{method: "POST", path: "alive/undrain", call: "undrain alive", answer: `{"node_id":"alive","status":"online"}`},
		{method: "DELETE", path: "silent", call: "remove silent e1", answer: `{"node_id":"silent","status":"removed","jobs":["` + apitest.JobID + `"]}`, jobs: []string{apitest.JobID}},
		{method: "DELETE", path: "silent?epoch=e1", call: "remove silent e1", answer: `{"node_id":"silent","status":"removed"}`},
		{method: "DELETE", path: "imported", call: "remove imported import", answer: `{"node_id":"imported","status":"removed"}`},
	} {
		control.calls, control.jobs = nil, c.jobs
		got := f.Do(t, c.method, "/v1/nodes/"+c.path, "")
		if got.Status != http.StatusOK || strings.TrimSpace(got.Text) != c.answer {
			t.Errorf("%s %s: %d %s; want got.Status == http.StatusOK, strings.TrimSpace(got.Text) == %v", c.method, c.path, got.Status, got.Text, c.answer)
		}
		if s := fmt.Sprint(control.calls); s != "["+c.call+"]" {
			t.Errorf("%s %s: called %s", c.method, c.path, s)
		}
	}
}

// TestNodeControlRefused: refusals before the store is asked, and refusals by the store.
func TestNodeControlRefused(t *testing.T) {
	t.Parallel()
	control := &fakeControl{}
	f := apitest.New(t, api.Config{}, apitest.WithTokens, control.use)
	add(f.Nodes, node("alive"), 0)
	add(f.Nodes, node("silent"), f.Nodes.SilenceLimit()+1)
	root := []string{"Authorization", "Bearer root-token"}
	for _, c := range changes {
		f.Do(t, c.method, "/v1/nodes/silent"+c.action, "").Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
		f.Do(t, c.method, "/v1/nodes/silent"+c.action, "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		f.Do(t, c.method, "/v1/nodes/node%3A2"+c.action, "", root...).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	}
	f.Do(t, "DELETE", "/v1/nodes/nobody", "", root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	got := f.Do(t, "DELETE", "/v1/nodes/alive", "", root...)
	got.Refusal(t, http.StatusConflict, freeslot.CodeConflict)
	if got.Body["field"] != "id" || !strings.Contains(got.Text, "the agent of node alive is alive") {
		t.Error(got.Text)
	}
	f.Do(t, "DELETE", "/v1/nodes/silent?epoch=e0", "", root...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
	if len(control.calls) != 0 {
		t.Error("called all the same:", control.calls)
	}

	control.err = &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no such node"}
	for _, c := range changes {
		f.Do(t, c.method, "/v1/nodes/silent"+c.action, "", root...).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	}
	// The agent has returned meanwhile, which this replica does not know yet.
	control.err = fmt.Errorf("deregister node silent: %w", cell.ErrSuperseded)
	f.Do(t, "DELETE", "/v1/nodes/silent", "", root...).Refusal(t, http.StatusConflict, freeslot.CodeConflict)
	control.err = context.DeadlineExceeded
	control.jobs = []string{apitest.JobID}
	for _, c := range changes {
		f.Do(t, c.method, "/v1/nodes/silent"+c.action, "", root...).Refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
	}
}

// TestWithoutNodeControl: a server that cannot change nodes has no such routes.
func TestWithoutNodeControl(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	add(f.Nodes, node("silent"), f.Nodes.SilenceLimit()+1)
	for _, c := range changes {
		if got := f.Do(t, c.method, "/v1/nodes/silent"+c.action, ""); got.Status != http.StatusNotFound && got.Status != http.StatusMethodNotAllowed {
			t.Errorf("%s %s: %d %s; want got.Status == http.StatusNotFound or got.Status == http.StatusMethodNotAllowed", c.method, c.action, got.Status, got.Text)
		}
	}
}

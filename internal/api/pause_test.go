package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/api/apitest"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
)

// fakeQueues keeps what is paused, and answers from its fields.
type fakeQueues struct {
	paused  selection.Paused
	version uint64
	remarks []string
	failure error
	behind  []string
	queues  []dispatch.Queue
	dropped []string
	waiting int
}

func (f *fakeQueues) use(d *api.Deps) { d.Queues, d.Pauses = f, f }

func (f *fakeQueues) ChangePaused(_ context.Context, edit func(*selection.Paused), action, author, note string) (cell.ConfigOutcome, *selection.Paused, error) {
	if f.failure != nil {
		return cell.ConfigOutcome{}, nil, f.failure
	}
	next := f.paused.Normal()
	edit(next)
	if next = next.Normal(); next.Equal(&f.paused) {
		return cell.ConfigOutcome{Version: f.version, Unchanged: true}, next, nil
	}
	f.paused, f.version = *next, f.version+1
	f.remarks = append(f.remarks, action+", "+author+": "+note)
	return cell.ConfigOutcome{Version: f.version}, next, nil
}

func (f *fakeQueues) Queues(context.Context) ([]dispatch.Queue, []int, error) {
	return f.queues, []int{3}, f.failure
}

func (f *fakeQueues) Held(context.Context) ([]cell.Held, []int, error) {
	return []cell.Held{{By: freeslot.HeldByKey, Tenant: "acme", Limit: 2, Running: 2, Jobs: 9, First: "0-first"}}, nil, nil
}

func (f *fakeQueues) QueueLength(context.Context, string, *freeslot.Requirement) (int, bool) {
	return f.waiting, f.failure == nil
}

func (f *fakeQueues) Confirm(context.Context, uint64, string) ([]string, error) {
	return f.behind, nil
}

func (f *fakeQueues) Drop(_ context.Context, tenant, id string) (freeslot.JobStatus, error) {
	f.dropped = append(f.dropped, tenant+" "+id)
	return apitest.Succeeded(), f.failure
}

const classID = "0123456789abcdef"

func TestPause(t *testing.T) {
	t.Parallel()
	q := new(fakeQueues)
	f := setup(t, api.Config{}, q.use)
	f.Nodes.ByID["n1"] = node("n1")
	post := func(path, body string) api.PauseResult {
		t.Helper()
		got := f.Do(t, "POST", path, body)
		var result api.PauseResult
		if err := json.Unmarshal([]byte(got.Text), &result); err != nil || got.Status != http.StatusOK {
			t.Fatal(got.Status, got.Text, err)
		}
		return result
	}
	some, none := 1, 0
	want := api.PauseResult{Kind: "service", Name: "tts", Paused: true, Version: 1, Nodes: &some, Confirmed: true, All: &selection.Paused{Services: []string{"tts"}}}
	if diff := cmp.Diff(want, post("/v1/services/tts/pause", `{"note":"broken","author":"alice"}`)); diff != "" {
		t.Error(diff)
	}
	q.behind = []string{"r2"}
	want = api.PauseResult{
		Kind: "pool", Name: "eu", Paused: true, Version: 2, Nodes: &none, Behind: q.behind,
		All: &selection.Paused{Pools: []string{"eu"}, Services: []string{"tts"}},
	}
	if diff := cmp.Diff(want, post("/v1/pools/eu/pause", "")); diff != "" {
		t.Error(diff)
	}
	if got := post("/v1/classes/"+classID+"/pause", ""); got.Nodes != nil || got.Version != 3 || !slices.Equal(got.All.Classes, []string{classID}) {
		t.Errorf("%+v", got)
	}
	if got := post("/v1/services/tts/pause", ""); !got.Unchanged || got.Version != 3 {
		t.Errorf("%+v", got)
	}
	if got := post("/v1/services/tts/resume", ""); got.Paused || got.Confirmed || got.Version != 4 || len(got.All.Services) != 0 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]string{"pause service tts, default/alice: broken", "pause pool eu, default: ", "pause class " + classID + ", default: ", "resume service tts, default: "}, q.remarks); diff != "" {
		t.Error(diff)
	}
	f.Do(t, "POST", "/v1/classes/tts/pause", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Do(t, "POST", "/v1/pools/a%20b/pause", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Do(t, "POST", "/v1/pools/eu/pause", `{"who":1}`).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	q.failure = &freeslot.Error{Code: freeslot.CodeConflict, Message: "broken"}
	f.Do(t, "POST", "/v1/pools/eu/pause", "").Refusal(t, http.StatusConflict, freeslot.CodeConflict)
}

func TestQueues(t *testing.T) {
	t.Parallel()
	q := &fakeQueues{queues: []dispatch.Queue{{
		Queue:   cell.Queue{Class: cell.Class{ID: classID}, Waiting: 7, OldestMS: 5, First: apitest.JobID},
		Service: "tts", Requirement: freeslot.Requirement{Pool: "eu"}, Fits: 3, PausedNodes: 3,
	}}}
	f := setup(t, api.Config{}, q.use)
	f.Nodes.Rules.Paused = &selection.Paused{Pools: []string{"eu"}}
	var got api.QueueList
	if r := f.Do(t, "GET", "/v1/queues", ""); json.Unmarshal([]byte(r.Text), &got) != nil || r.Status != http.StatusOK {
		t.Fatal(r.Status, r.Text)
	}
	want := api.QueueList{
		Queues: []api.QueueStatus{{
			Class: classID, Service: "tts", Requirement: freeslot.Requirement{Pool: "eu"}, Waiting: 7, OldestMS: 5, First: apitest.JobID, Fits: 3, Paused: true, PausedNodes: 3,
		}},
		Held:      []api.HeldStatus{{By: "concurrency_key", Tenant: "acme", Limit: 2, Running: 2, Held: 9, First: "0-first"}},
		AllPaused: f.Nodes.Rules.Paused, Unreachable: []int{3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Clients see and change nothing of it, but drop their own jobs.
func TestQueuesPermissions(t *testing.T) {
	t.Parallel()
	q := new(fakeQueues)
	f := setup(t, api.Config{}, apitest.WithTokens, q.use)
	for _, route := range []string{"GET /v1/queues", "POST /v1/pools/eu/pause", "POST /v1/services/tts/resume"} {
		method, path, _ := strings.Cut(route, " ")
		f.Do(t, method, path, "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	}
	if got := f.Do(t, "DELETE", "/v1/jobs/"+apitest.JobID, "", "Authorization", "Bearer acme-token"); got.Status != http.StatusOK {
		t.Error(got.Status, got.Text)
	}
	if got := f.Do(t, "DELETE", "/v1/jobs/"+apitest.JobID, "", "Authorization", "Bearer root-token"); got.Status != http.StatusOK {
		t.Error(got.Status, got.Text)
	}
	if len(q.dropped) != 2 || q.dropped[0] != "acme "+apitest.JobID || q.dropped[1] != " "+apitest.JobID || len(q.remarks) != 0 {
		t.Errorf("%q %q", q.dropped, q.remarks)
	}
	f.Do(t, "DELETE", "/v1/jobs/x", "", "Authorization", "Bearer root-token").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}

func TestListByClass(t *testing.T) {
	t.Parallel()
	f := setup(t, api.Config{})
	var got cell.JobFilter
	f.Jobs.OnList = func(filter cell.JobFilter, _ string, _ int) (cell.JobPage, error) {
		got = filter
		return cell.JobPage{}, nil
	}
	if r := f.Do(t, "GET", "/v1/jobs?class="+classID+"&state=waiting", ""); r.Status != http.StatusOK || got.Class != classID || got.State != freeslot.StateWaiting {
		t.Error(r.Status, r.Text, got)
	}
	f.Do(t, "GET", "/v1/jobs?class=tts", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}

package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/dispatch"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// fakeQueues answers from its fields.
type fakeQueues struct {
	failure error
	queues  []dispatch.Queue
	dropped []string
	waiting int
}

func (f *fakeQueues) use(d *api.Deps) { d.Queues = f }

func (f *fakeQueues) Queues(context.Context) ([]dispatch.Queue, []int, error) {
	return f.queues, []int{3}, f.failure
}

func (f *fakeQueues) FullLimits(context.Context) ([]cell.FullLimit, []int, error) {
	return []cell.FullLimit{{By: freeslot.HeldByKey, Tenant: "acme", Limit: 2, Running: 2, Jobs: 9, First: "0-first"}}, nil, nil
}

func (f *fakeQueues) QueueLength(context.Context, string, *freeslot.Requirement) (int, bool) {
	return f.waiting, f.failure == nil
}

func (f *fakeQueues) Drop(_ context.Context, tenant, id string) (freeslot.JobStatus, error) {
	f.dropped = append(f.dropped, tenant+" "+id)
	return apitest.Succeeded(), f.failure
}

const classID = "0123456789abcdef"

func TestQueues(t *testing.T) {
	t.Parallel()
	q := &fakeQueues{queues: []dispatch.Queue{{
		Queue:   cell.Queue{Class: cell.Class{ID: classID}, Waiting: 7, OldestMS: 5, First: apitest.JobID},
		Service: "tts", Requirement: freeslot.Requirement{Pool: "eu"}, Fits: 3, PausedNodes: 3,
	}}}
	f := apitest.New(t, api.Config{}, q.use)
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

// Clients see no queues, but drop their own jobs.
func TestQueuesPermissions(t *testing.T) {
	t.Parallel()
	q := new(fakeQueues)
	f := apitest.New(t, api.Config{}, apitest.WithTokens, q.use)
	f.Do(t, "GET", "/v1/queues", "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	if got := f.Do(t, "DELETE", "/v1/jobs/"+apitest.JobID, "", "Authorization", "Bearer acme-token"); got.Status != http.StatusOK {
		t.Error(got.Status, got.Text)
	}
	if got := f.Do(t, "DELETE", "/v1/jobs/"+apitest.JobID, "", "Authorization", "Bearer root-token"); got.Status != http.StatusOK {
		t.Error(got.Status, got.Text)
	}
	if len(q.dropped) != 2 || q.dropped[0] != "acme "+apitest.JobID || q.dropped[1] != " "+apitest.JobID {
		t.Errorf(`%q; want len(q.dropped) == 2, q.dropped[0] == "acme "+apitest.JobID, q.dropped[1] == " "+apitest.JobID`, q.dropped)
	}
	f.Do(t, "DELETE", "/v1/jobs/x", "", "Authorization", "Bearer root-token").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
}

func TestListByClass(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
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

package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// TestExplainJob: every state has its reason, and a job that waits also what the nodes say.
func TestExplainJob(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	for _, id := range []string{"n1", "n2"} {
		n := selection.NewNode(selection.Compile(&freeslot.Node{ID: id, MaxConcurrency: 1, Services: []freeslot.Service{{Name: "tts"}}}), 0)
		n.Seen(0)
		n.SetUsed(1)
		f.Nodes.Live = append(f.Nodes.Live, n)
	}
	var status freeslot.JobStatus
	f.Jobs.OnJob = func(tenant, _ string) (freeslot.JobStatus, error) {
		if tenant != "" {
			t.Errorf("an operator asks as tenant %s", tenant)
		}
		return status, nil
	}
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) {
		return &freeslot.Job{Service: "tts", ConcurrencyKey: "k", ConcurrencyLimit: 2}, "acme", nil
	}
	lost := &freeslot.JobError{Code: freeslot.JobErrorNodeLost, Message: "silent"}
	const nodes = "2 of 2 nodes fit, and 0 of them could take it now; against the others: full 2"
	for want, s := range map[string]freeslot.JobStatus{
		"it is scheduled for 1970-01-01T00:00:09.000Z, and waits for a slot from then on|" + nodes:                   {State: "scheduled", RunAtMS: 9000},
		"tenant acme runs as many jobs as its max_running allows|" + nodes:                                           {State: "waiting", HeldBy: freeslot.HeldByTenant},
		"as many jobs with its concurrency_key run as concurrency_limit (2) allows|" + nodes:                         {State: "waiting", HeldBy: freeslot.HeldByKey},
		"its service, its class or its pool is paused|" + nodes:                                                      {State: "waiting", HeldBy: freeslot.HeldByPause},
		"it has place 3 in the queue of its class, in its cell|" + nodes + "|it expires at 1970-01-01T00:00:08.000Z": {State: "waiting", Position: 3, DeadlineMS: 8000},
		"its cell has lost the nodes that fit, and it is on its way to another cell|" + nodes:                        {State: "moving"},
		"attempt 1 on node n1 failed, and the next one is due at 1970-01-01T00:00:07.000Z|1 of at most 3 attempts failed, the last one with node_lost: silent; a node gets no job for two seconds that has just failed on it|" + nodes: {State: "retry_wait", RunAtMS: 7000, Failures: 1, Attempt: 1, Node: "n1", Error: lost},
		"attempt 2 on node n1 runs since 1970-01-01T00:00:02.000Z":                                        {State: "running", AssignedAtMS: 2000, Attempt: 2, Node: "n1"},
		"attempt 1 on node n1 is asked to stop, because the job was cancelled or its deadline has passed": {State: "cancelling", Attempt: 1, Node: "n1"},
		"attempt 1 on node n1 succeeded after 1.5s":                                                       {State: "succeeded", Attempt: 1, Node: "n1", AssignedAtMS: 1000, FinishedAtMS: 2500},
		"attempt 1 on node n1 ended with an error that no retry can mend: bad: x":                         {State: "failed", Attempt: 1, Node: "n1", Error: &freeslot.JobError{Code: "bad", Message: "x"}},
		"3 of at most 3 attempts failed, the last one with node_lost: silent":                             {State: "dead", Attempt: 4, Failures: 3, Error: lost},
		"it was cancelled before its first attempt":                                                       {State: "cancelled"},
		"it was cancelled; the last attempt was attempt 1 on node n1":                                     {State: "cancelled", Attempt: 1, Node: "n1"},
		"no_matching_node: no node, 2s after its submission":                                              {State: "expired", SubmittedAtMS: 1000, FinishedAtMS: 3000, Error: &freeslot.JobError{Code: freeslot.JobErrorNoMatchingNode, Message: "no node"}},
		"its deadline was 1970-01-01T00:00:03.000Z, 2s after its submission; no attempt had begun":        {State: "expired", SubmittedAtMS: 1000, DeadlineMS: 3000, FinishedAtMS: 3001},
		"its deadline was 1970-01-01T00:00:03.000Z, 2s after its submission, too early for another attempt; 1 of at most 3 attempts failed, the last one with node_lost: silent": {State: "expired", SubmittedAtMS: 1000, DeadlineMS: 3000, FinishedAtMS: 2000, Attempt: 1, Failures: 1, Error: lost},
	} {
		status = s
		status.ID, status.Tenant, status.Service = apitest.JobID, "acme", "tts"
		got := f.Do(t, "GET", "/v1/jobs/"+apitest.JobID+"/explain?limit=1", "")
		var why []string
		for _, line := range got.Body["why"].([]any) {
			why = append(why, fmt.Sprint(line))
		}
		if got.Status != http.StatusOK || strings.Join(why, "|") != want {
			t.Errorf("%s: got %q, want %q", s.State, why, want)
		}
		placement, _ := got.Body["placement"].(map[string]any)
		listed, _ := placement["nodes"].([]any)
		if waits := strings.Contains(want, nodes); waits != (placement != nil) || waits != (len(listed) == 1) {
			t.Errorf("%s: %s; want waits == (placement != nil), waits == (len(listed) == 1)", s.State, got.Text)
		}
	}
	f.Do(t, "GET", "/v1/jobs/no-id/explain", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Do(t, "GET", "/v1/jobs/"+apitest.JobID+"/explain?limit=1001", "").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) {
		return nil, "", &freeslot.Error{Code: freeslot.CodeNotFound, Message: "gone"}
	}
	f.Do(t, "GET", "/v1/jobs/"+apitest.JobID+"/explain", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
}

// TestExplainJobForNode: a job that no node fits waits for a node of the pool that expects it.
func TestExplainJobForNode(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Nodes.Rules = selection.Config{Enabled: true}
	for _, id := range []string{"gpu", "cpu"} {
		f.Nodes.Rules.Pools = append(f.Nodes.Rules.Pools, selection.Pool{ID: id, Expects: &selection.Expects{Services: []string{"tts"}}})
	}
	f.Jobs.OnJob = func(string, string) (freeslot.JobStatus, error) {
		return freeslot.JobStatus{ID: apitest.JobID, State: freeslot.StateWaiting, Position: 2, WaitsForPool: "gpu", NodeByMS: 9000}, nil
	}
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) { return &freeslot.Job{Service: "tts"}, "acme", nil }
	got := f.Do(t, "GET", "/v1/jobs/"+apitest.JobID+"/explain", "")
	var why []string
	for _, line := range got.Body["why"].([]any) {
		why = append(why, fmt.Sprint(line))
	}
	const want = "it waits for a node of pool gpu or cpu to start|" +
		"it expires as no_matching_node at 1970-01-01T00:00:09.000Z if no node fits then|" +
		"it has place 2 in the queue of its class, in its cell|0 of 0 nodes fit, and 0 of them could take it now"
	if strings.Join(why, "|") != want {
		t.Errorf("got %q, want %q", why, want)
	}
	if !strings.Contains(got.Text, `"waits_for_pool":"gpu","node_by_ms":9000`) {
		t.Errorf("%s; want waits_for_pool and node_by_ms in it", got.Text)
	}
}

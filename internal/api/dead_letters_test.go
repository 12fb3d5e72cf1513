package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// TestDeadLetters: operators count the dead jobs of all tenants, clients their own, without a
// total.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, apitest.WithTokens)
	var filter cell.JobFilter
	var by []cell.DeadKey
	f.Jobs.OnDead = func(got cell.JobFilter, keys []cell.DeadKey) (cell.DeadLetters, error) {
		filter, by = got, keys
		return cell.DeadLetters{
			Groups: []cell.DeadGroup{{Service: "tts", Code: "boom", Jobs: 2, LastMS: 7, LastJob: apitest.JobID}}, LookedAt: 3, Total: 9, SinceMS: 5, Unreachable: []int{2},
		}, nil
	}
	ask := func(token, query string) apitest.Response {
		return f.Do(t, "GET", "/v1/dead-letters"+query, "", "Authorization", "Bearer "+token)
	}
	const group = `{"groups":[{"service":"tts","code":"boom","jobs":2,"last_ms":7,"last_job_id":"` + apitest.JobID + `"}],"looked_at":3,`
	if got := ask("root-token", "?ended_from_ms=4&service=tts"); strings.TrimSpace(got.Text) != group+`"total":9,"since_ms":5,"unreachable":[2]}` {
		t.Error(got.Text)
	}
	if d := cmp.Diff(cell.JobFilter{State: freeslot.StateDead, Service: "tts", FromMS: 4}, filter); d != "" {
		t.Errorf("filter (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]cell.DeadKey{cell.DeadByService, cell.DeadByCode}, by); d != "" {
		t.Errorf("by (-want +got):\n%s", d)
	}
	if got := ask("acme-token", "?group=node,tenant"); strings.TrimSpace(got.Text) != group+`"since_ms":5,"unreachable":[2]}` || filter.Tenant != "acme" {
		t.Error(got.Text, filter)
	}
	if d := cmp.Diff([]cell.DeadKey{cell.DeadByNode, cell.DeadByTenant}, by); d != "" {
		t.Errorf("by (-want +got):\n%s", d)
	}
	ask("acme-token", "?tenant=other").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	for _, query := range []string{"?group=colour", "?service=a:b", "?ended_from_ms=3&ended_to_ms=3"} {
		ask("root-token", query).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	}
}

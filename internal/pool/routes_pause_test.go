package pool

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// fakePauses keeps what is paused, and answers from its fields.
type fakePauses struct {
	paused  selection.Paused
	changes uint64 // is their version
	remarks []string
	refusal error
	behind  []string
	unaware []string
}

func (f *fakePauses) ChangePaused(_ context.Context, edit func(*selection.Paused), action, author, note string) (Outcome, *selection.Paused, error) {
	if f.refusal != nil {
		return Outcome{}, nil, f.refusal
	}
	next := f.paused.Normal()
	edit(next)
	if next = next.Normal(); next.Equal(&f.paused) {
		return Outcome{Version: f.changes, Unchanged: true}, next, nil
	}
	f.paused, f.changes = *next, f.changes+1
	f.remarks = append(f.remarks, action+", "+author+": "+note)
	return Outcome{Version: f.changes}, next, nil
}

func (f *fakePauses) Confirm(context.Context, uint64, string) ([]string, error) {
	return f.behind, nil
}

func (f *fakePauses) UnawareOfExpects(context.Context) ([]string, error) {
	return f.unaware, f.refusal
}

const classID = "0123456789abcdef"

func TestPause(t *testing.T) {
	t.Parallel()
	f := setup(t)
	q := f.store
	f.Nodes.ByID["n1"] = cell.NodeState{Node: freeslot.Node{ID: "n1", Services: []freeslot.Service{{Name: "tts"}}}}
	post := func(path, body string) PauseResult {
		t.Helper()
		got := f.Do(t, "POST", path, body)
		var result PauseResult
		if err := json.Unmarshal([]byte(got.Text), &result); err != nil || got.Status != http.StatusOK {
			t.Fatal(got.Status, got.Text, err)
		}
		return result
	}
	some, none := 1, 0
	want := PauseResult{Kind: "service", Name: "tts", Paused: true, Version: 1, Nodes: &some, Confirmed: true, All: &selection.Paused{Services: []string{"tts"}}}
	if diff := cmp.Diff(want, post("/v1/services/tts/pause", `{"note":"broken","author":"alice"}`)); diff != "" {
		t.Error(diff)
	}
	q.behind = []string{"r2"}
	want = PauseResult{
		Kind: "pool", Name: "eu", Paused: true, Version: 2, Nodes: &none, Behind: q.behind,
		All: &selection.Paused{Pools: []string{"eu"}, Services: []string{"tts"}},
	}
	if diff := cmp.Diff(want, post("/v1/pools/eu/pause", "")); diff != "" {
		t.Error(diff)
	}
	if got := post("/v1/classes/"+classID+"/pause", ""); got.Nodes != nil || got.Version != 3 || !slices.Equal(got.All.Classes, []string{classID}) {
		t.Errorf("%+v; want got.Nodes == nil, got.Version == 3, slices.Equal(got.All.Classes, []string{classID})", got)
	}
	if got := post("/v1/services/tts/pause", ""); !got.Unchanged || got.Version != 3 {
		t.Errorf("%+v; want got.Unchanged, got.Version == 3", got)
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
	q.refusal = &freeslot.Error{Code: freeslot.CodeConflict, Message: "broken"}
	f.Do(t, "POST", "/v1/pools/eu/pause", "").Refusal(t, http.StatusConflict, freeslot.CodeConflict)
}

func TestPauseForOperatorsOnly(t *testing.T) {
	t.Parallel()
	f := setup(t, apitest.WithTokens)
	for _, path := range []string{"/v1/pools/eu/pause", "/v1/services/tts/resume"} {
		f.Do(t, "POST", path, "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	}
	if len(f.store.remarks) != 0 {
		t.Errorf("%q; want len(f.store.remarks) == 0", f.store.remarks)
	}
}

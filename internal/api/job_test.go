package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

const ttsJob = `{"service":"tts","payload":{"text":"hello"},"requirement":{"target_language":"de"},"slots":2}`

func TestSubmit(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	got := f.Do(t, "POST", "/v1/jobs", ttsJob)
	if got.Status != http.StatusAccepted || got.Body["job_id"] != apitest.JobID || got.Body["state"] != "running" {
		t.Fatalf("answer is %d %s", got.Status, got.Text)
	}
	want := []apitest.Submission{{Tenant: "default", Job: freeslot.Job{
		Service: "tts", Payload: []byte(`{"text":"hello"}`), Requirement: freeslot.Requirement{TargetLanguage: "de"}, Slots: 2,
	}}}
	if diff := cmp.Diff(want, f.Jobs.Submitted, cmp.AllowUnexported(apitest.Submission{})); diff != "" {
		t.Error(diff)
	}
}

func TestSubmitIsAcceptedEvenWhenItsRecordCannotBeRead(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Jobs.OnJob = func(string, string) (freeslot.JobStatus, error) {
		return freeslot.JobStatus{}, context.DeadlineExceeded
	}
	got := f.Do(t, "POST", "/v1/jobs", ttsJob)
	if got.Status != http.StatusAccepted || got.Body["job_id"] != apitest.JobID || got.Body["slots"] != 2.0 {
		t.Errorf("answer is %d %s", got.Status, got.Text)
	}
}

func TestSubmitCarriesTheTrace(t *testing.T) {
	t.Parallel()
	const header = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const own = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	f := apitest.New(t, api.Config{})
	f.Do(t, "POST", "/v1/jobs", `{"service":"tts"}`, "Traceparent", header)
	f.Do(t, "POST", "/v1/jobs", `{"service":"tts","traceparent":"`+own+`"}`, "Traceparent", header)
	if got := f.Jobs.Submitted; got[0].Job.TraceParent != header || got[1].Job.TraceParent != own {
		t.Errorf("trace contexts are %q and %q", got[0].Job.TraceParent, got[1].Job.TraceParent)
	}
}

func TestSubmitTakesTheKeyOfTheHeader(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Do(t, "POST", "/v1/jobs", `{"service":"tts"}`, "Idempotency-Key", "k")
	f.Do(t, "POST", "/v1/jobs", `{"service":"tts","idempotency_key":"k"}`, "Idempotency-Key", "k")
	for _, submitted := range f.Jobs.Submitted {
		if got := submitted.Job.IdempotencyKey; got != "k" {
			t.Errorf("the key is %q", got)
		}
	}
	f.Do(t, "POST", "/v1/jobs", `{"service":"tts","idempotency_key":"other"}`, "Idempotency-Key", "k").Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	f.Do(t, "POST", "/v1/jobs", `{"service":"tts"}`, "Idempotency-Key", strings.Repeat("k", 10_000)).Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
	if n := len(f.Jobs.Submitted); n != 2 {
		t.Errorf("%d jobs are submitted", n)
	}
}

func TestSubmitIsStrict(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{MaxPayloadBytes: 100})
	for body, field := range map[string]string{
		"":                                "",
		"{":                               "job",
		"[]":                              "job",
		"null":                            "job",
		`{"service":"tts","color":"red"}`: "job.color",
		`{"service":"tts"} {}`:            "job",
		`{"service":"tts","slots":"2"}`:   "job.slots",
		`{"service":"tts","slots":-1}`:    "job.slots",
		`{"service":"a b"}`:               "job.service",
		`{}`:                              "job.service",
		`{"service":"tts","requirement":{"pool":"*"}}`:      "job.requirement.pool",
		`{"service":"tts","requirement":{"language":"de"}}`: "job.requirement.language",
		`{"service":"tts","service":"tts"}`:                 "job.service", `{"service":"tts","slots":null}`: "job.slots",
		`{"service":"tts","payload":{}x}`: "job", `{"service":"tts","payload":x}`: "job.payload",
	} {
		got := f.Do(t, "POST", "/v1/jobs", body)
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if gotField, _ := got.Body["field"].(string); gotField != field {
			t.Errorf("%s: field is %q, expected %q", body, gotField, field)
		}
	}
	if got := f.Do(t, "POST", "/v1/jobs", `{"service":5}`); got.Body["message"] != "job.service is a number, expected a string" {
		t.Error(got.Text)
	}
	for target, field := range map[string]string{
		"/v1/jobs?wait_ms=60001": "wait_ms", "/v1/jobs?wait_ms=-1": "wait_ms", "/v1/jobs?wait_ms=1s": "wait_ms", "/v1/jobs?wait=1": "wait",
	} {
		got := f.Do(t, "POST", target, ttsJob)
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if got.Body["field"] != field {
			t.Errorf("%s: field is %v, expected %s: %s", target, got.Body["field"], field, got.Text)
		}
	}
	if len(f.Jobs.Submitted) != 0 {
		t.Error("a refused job was submitted:", f.Jobs.Submitted)
	}
}

func TestSizes(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{MaxPayloadBytes: 100})
	fits := "\ufeff" + `{"service":"tts","payload":"` + strings.Repeat("x", 98) + `"}` // some editors write the mark
	if got := f.Do(t, "POST", "/v1/jobs", fits); got.Status != http.StatusAccepted {
		t.Errorf("a payload of 100 bytes: %d %s", got.Status, got.Text)
	}
	over := `{"service":"tts","payload":"` + strings.Repeat("x", 99) + `"}`
	got := f.Do(t, "POST", "/v1/jobs", over)
	got.Refusal(t, http.StatusRequestEntityTooLarge, freeslot.CodePayloadTooLarge)
	if got.Body["field"] != "job.payload" {
		t.Error(got.Text)
	}
	// A body larger than any job may be is refused without being read to its end.
	f.Do(t, "POST", "/v1/jobs", strings.Repeat("x", 1<<20)).Refusal(t, http.StatusRequestEntityTooLarge, freeslot.CodePayloadTooLarge)
}

// TestEveryCode reaches each code of the protocol, whatever part decides on it.
func TestEveryCode(t *testing.T) {
	t.Parallel()
	var failure error
	f := apitest.New(t, api.Config{MaxPayloadBytes: 100}, apitest.WithTokens)
	f.Jobs.OnSubmit = func(apitest.Submission) error { return failure }
	f.Jobs.OnJob = func(_, id string) (freeslot.JobStatus, error) {
		return freeslot.JobStatus{}, &freeslot.Error{Code: freeslot.CodeNotFound, Message: "there is no job " + id}
	}
	acme := []string{"Authorization", "Bearer acme-token"}
	submit := func(err error) apitest.Response {
		failure = err
		return f.Do(t, "POST", "/v1/jobs", ttsJob, acme...)
	}
	reached := map[freeslot.Code]bool{}
	check := func(got apitest.Response, status int, code freeslot.Code) apitest.Response {
		t.Helper()
		got.Refusal(t, status, code)
		reached[code] = true
		return got
	}
	check(f.Do(t, "GET", "/v1/jobs/nonsense", "", acme...), 400, freeslot.CodeInvalidArgument)
	check(f.Do(t, "POST", "/v1/jobs", strings.Repeat(" ", 1<<20), acme...), 413, freeslot.CodePayloadTooLarge)
	check(f.Do(t, "GET", "/v1/jobs/"+apitest.JobID, "", acme...), 404, freeslot.CodeNotFound)
	check(f.Do(t, "GET", "/v1/nodes", "", acme...), 403, freeslot.CodePermissionDenied)

	got := check(f.Do(t, "GET", "/v1/jobs/"+apitest.JobID, ""), 401, freeslot.CodeUnauthenticated)
	if got.Header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	got = check(submit(&freeslot.Error{Code: freeslot.CodeNoMatchingNode, Message: "no node fits", Breakdown: map[string]int{"service": 3}}), 422, freeslot.CodeNoMatchingNode)
	if diff := cmp.Diff(map[string]any{"service": 3.0}, got.Body["breakdown"]); diff != "" {
		t.Error(diff)
	}
	got = check(submit(&freeslot.Error{Code: freeslot.CodeOverloaded, Message: "all full", RetryAfter: 1500 * time.Millisecond}), 429, freeslot.CodeOverloaded)
	if got.Header.Get("Retry-After") != "2" || got.Body["retry_after_ms"] != 1500.0 {
		t.Error("expected a retry after 1.5s:", got.Header, got.Text)
	}
	got = check(submit(&freeslot.Error{Code: freeslot.CodeRateLimited, Message: "too many", RetryAfter: 3 * time.Second}), 429, freeslot.CodeRateLimited)
	if got.Header.Get("Retry-After") != "3" {
		t.Error("429 without Retry-After")
	}
	got = check(submit(fmt.Errorf("submit: %w", context.DeadlineExceeded)), 503, freeslot.CodeUnavailable)
	if got.Header.Get("Retry-After") != "1" {
		t.Error("503 without Retry-After")
	}
	check(submit(&freeslot.Error{Code: freeslot.CodeConflict, Message: "another job has the key"}), 409, freeslot.CodeConflict)
	check(submit(&freeslot.Error{Code: freeslot.CodeNotAdmitted, Message: "the chain refuses it"}), 403, freeslot.CodeNotAdmitted)
	check(submit(cell.ErrStopped), 503, freeslot.CodeUnavailable)
	got = check(submit(errors.New("secret detail")), 500, freeslot.CodeInternal)
	if strings.Contains(got.Text, "secret") {
		t.Error("an internal error shows its cause:", got.Text)
	}
	for _, code := range []freeslot.Code{
		freeslot.CodeInvalidArgument, freeslot.CodePayloadTooLarge, freeslot.CodeNoMatchingNode, freeslot.CodeOverloaded, freeslot.CodeRateLimited, freeslot.CodeUnavailable,
		freeslot.CodeUnauthenticated, freeslot.CodePermissionDenied, freeslot.CodeNotAdmitted, freeslot.CodeNotFound, freeslot.CodeConflict, freeslot.CodeInternal,
	} {
		if !reached[code] {
			t.Error("not reached:", code)
		}
	}
}

func TestPanicIsAnInternalError(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Jobs.OnSubmit = func(apitest.Submission) error { panic("defect") }
	f.Do(t, "POST", "/v1/jobs", ttsJob).Refusal(t, http.StatusInternalServerError, freeslot.CodeInternal)
}

// TestBrokenAnswerIsCutOff: a record that is no JSON any more cannot be sent, and half of an answer
// must not look complete.
func TestBrokenAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
	f.Jobs.OnJob = func(string, string) (freeslot.JobStatus, error) {
		broken := apitest.Succeeded()
		broken.Result = []byte("{")
		return broken, nil
	}
	resp, err := http.DefaultTransport.RoundTrip(newRequest(t, "GET", start(t, f)+"/v1/jobs/"+apitest.JobID, ""))
	if err == nil {
		defer resp.Body.Close()
		if _, err = io.ReadAll(resp.Body); err == nil {
			t.Error("the answer ends like a whole one")
		}
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, apitest.WithTokens)
	var scope string
	f.Jobs.OnJob = func(tenant, _ string) (freeslot.JobStatus, error) {
		scope = tenant
		return apitest.Running(), nil
	}
	var filter cell.JobFilter
	f.Jobs.OnList = func(got cell.JobFilter, _ string, _ int) (cell.JobPage, error) {
		filter = got
		return cell.JobPage{}, nil
	}
	acme, root := "Bearer acme-token", "bearer root-token"
	for _, c := range []struct{ token, want string }{{acme, "acme"}, {root, ""}} {
		for _, call := range [][2]string{{"GET", "/v1/jobs/" + apitest.JobID}, {"POST", "/v1/jobs/" + apitest.JobID + "/cancel"}} {
			scope = "unset"
			if got := f.Do(t, call[0], call[1], "", "Authorization", c.token); got.Status != http.StatusOK || scope != c.want {
				t.Errorf("%v as %s: %d, tenant %q, expected %q", call, c.token, got.Status, scope, c.want)
			}
		}
	}
	for _, c := range []struct{ token, target, want string }{
		{acme, "/v1/jobs", "acme"}, {acme, "/v1/jobs?tenant=acme", "acme"}, {root, "/v1/jobs", ""}, {root, "/v1/jobs?tenant=other", "other"},
	} {
		if got := f.Do(t, "GET", c.target, "", "Authorization", c.token); got.Status != http.StatusOK || filter.Tenant != c.want {
			t.Errorf("%s as %s: %d %s, tenant %q, expected %q", c.target, c.token, got.Status, got.Text, filter.Tenant, c.want)
		}
	}
	f.Do(t, "GET", "/v1/jobs?tenant=other", "", "Authorization", acme).Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	f.Do(t, "POST", "/v1/jobs", ttsJob, "Authorization", root)
	if got := f.Jobs.Submitted[0].Tenant; got != "ops" {
		t.Errorf("an operator's job belongs to %q, expected its own tenant", got)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Jobs.OnList = func(filter cell.JobFilter, cursor string, limit int) (cell.JobPage, error) {
		if filter.State != freeslot.StateSucceeded || cursor != "n~a~b" || limit != 7 {
			t.Errorf("asked for %+v %q %d", filter, cursor, limit)
		}
		return cell.JobPage{Jobs: []freeslot.JobStatus{apitest.Succeeded()}, Cursor: "next"}, nil
	}
	got := f.Do(t, "GET", "/v1/jobs?state=succeeded&cursor=n~a~b&limit=7", "")
	if !strings.Contains(got.Text, `"result":{"ok":"<&>"}`) || got.Body["cursor"] != "next" {
		t.Error(got.Text)
	}
	want := cell.JobFilter{State: freeslot.StateDead, Service: "tts", Node: "n1", Code: "boom", Schedule: "nightly", FromMS: 1, ToMS: 9}
	f.Jobs.OnList = func(filter cell.JobFilter, _ string, _ int) (cell.JobPage, error) {
		if filter != want {
			t.Errorf("asked for %+v; want %+v", filter, want)
		}
		return cell.JobPage{LookedAt: 12, SinceMS: 34, Unreachable: []int{3}}, nil
	}
	got = f.Do(t, "GET", "/v1/jobs?state=dead&service=tts&node=n1&code=boom&schedule=nightly&ended_from_ms=1&ended_to_ms=9", "")
	if strings.TrimSpace(got.Text) != `{"jobs":[],"looked_at":12,"since_ms":34,"unreachable":[3]}` {
		t.Error(got.Text)
	}
	f.Jobs.OnList = func(_ cell.JobFilter, _ string, limit int) (cell.JobPage, error) {
		if limit != api.DefaultPage {
			t.Errorf("limit is %d, expected the default", limit)
		}
		return cell.JobPage{}, nil
	}
	if got := f.Do(t, "GET", "/v1/jobs", ""); strings.TrimSpace(got.Text) != `{"jobs":[],"looked_at":0}` {
		t.Error("an empty page is", got.Text)
	}
	for target, field := range map[string]string{"?limit=501": "limit", "?limit=0": "limit", "?state=lost": "state", "?tenant=a:b": "tenant", "?page=2": "page", "?service=a:b": "service", "?node=a:b": "node", "?schedule=a:b": "schedule", "?state=running&ended_from_ms=1": "state", "?ended_from_ms=2&ended_to_ms=2": "ended_to_ms"} {
		got := f.Do(t, "GET", "/v1/jobs"+target, "")
		got.Refusal(t, http.StatusBadRequest, freeslot.CodeInvalidArgument)
		if got.Body["field"] != field {
			t.Errorf(`%s: %s; want got.Body["field"] == %v`, target, got.Text, field)
		}
	}
}

func TestUnknownRoutes(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Do(t, "GET", "/", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "GET", "/v2/jobs", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "GET", "/docs", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	got := f.Do(t, "DELETE", "/v1/jobs/"+apitest.JobID, "")
	got.Refusal(t, http.StatusMethodNotAllowed, freeslot.CodeInvalidArgument)
	if got.Header.Get("Allow") != "GET, HEAD" {
		t.Error(got.Header)
	}
}

// TestScopes: a call about a job reaches the jobs of every tenant, or only the caller's.
func TestScopes(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, func(d *api.Deps) {
		var tokens []identity.Credential
		for _, role := range identity.Roles {
			tokens = append(tokens, identity.Credential{
				Token: string(role), Principal: identity.Principal{Tenant: "acme", Role: role},
			})
		}
		d.Auth = identity.NewAuthenticator(tokens, "default", true)
	})
	var asked string
	f.Jobs.OnJob = func(tenant, _ string) (freeslot.JobStatus, error) {
		asked = tenant
		return apitest.Running(), nil
	}
	f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) { return &freeslot.Job{}, "acme", nil }
	for _, c := range []struct {
		method, path string
		all          []identity.Role
		own          []identity.Role
	}{
		{"GET", "", []identity.Role{identity.Viewer, identity.Operator, identity.Admin}, []identity.Role{identity.Client, identity.TenantOperator}},
		{"GET", "/spec", []identity.Role{identity.Viewer, identity.Operator, identity.Admin}, []identity.Role{identity.Client, identity.TenantOperator}},
		{"GET", "/explain", []identity.Role{identity.Viewer, identity.Operator, identity.Admin}, []identity.Role{identity.TenantOperator}},
		{"POST", "/cancel", []identity.Role{identity.Operator, identity.Admin}, []identity.Role{identity.Client, identity.TenantOperator}},
		{"POST", "/requeue", []identity.Role{identity.Operator, identity.Admin}, []identity.Role{identity.Client, identity.TenantOperator}},
	} {
		for want, roles := range map[string][]identity.Role{"": c.all, "acme": c.own} {
			for _, role := range roles {
				asked = "nothing"
				got := f.Do(t, c.method, "/v1/jobs/"+apitest.JobID+c.path, "", "Authorization", "Bearer "+string(role))
				if asked != want {
					t.Errorf("%s %s by %s asked for tenant %q, expected %q: %s", c.method, c.path, role, asked, want, got.Text)
				}
			}
		}
	}
}

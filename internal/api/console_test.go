package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/cell"
	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// fakeConsole knows the cookie of root, and refuses the cookie of evil.
type fakeConsole http.HandlerFunc

func (f fakeConsole) ServeHTTP(w http.ResponseWriter, r *http.Request) { f(w, r) }

func (f fakeConsole) Recognize(_ http.ResponseWriter, r *http.Request) (*http.Request, *freeslot.Error) {
	switch r.Header.Get("Cookie") {
	case "evil":
		return r, &freeslot.Error{Code: freeslot.CodePermissionDenied, Message: "evil"}
	case "root":
		return r.WithContext(identity.As(r.Context(), &identity.Principal{Tenant: "ops", Role: identity.Operator})), nil
	}
	return r, nil
}

// TestCookieOpens: the console's cookie opens the API and the registry over HTTP, with the rights
// of its caller, and no WebSocket.
func TestCookieOpens(t *testing.T) {
	t.Parallel()
	var sessions int
	f := apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) {
		d.Console = fakeConsole(nil)
		refuse := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := d.Auth.Authenticate(r); err != nil {
				sessions++
			}
		})
		d.Sessions, d.Gateway = refuse, refuse
		d.Routes = append(d.Routes, func(r *api.Router) {
			operation := huma.Operation{OperationID: "list-services", Method: http.MethodGet, Path: "/admin/registry/services"}
			huma.Register(r, operation, func(context.Context, *struct{}) (*struct{ Body struct{} }, error) {
				return &struct{ Body struct{} }{}, nil
			})
		})
	})
	const services = "/admin/registry/services"
	if got := f.Do(t, "GET", services, "", "Cookie", "root"); got.Status != http.StatusOK || got.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the registry answers a cookie with %d %s; want 200, and to be kept nowhere", got.Status, got.Text)
	}
	f.Do(t, "GET", services, "", "Cookie", "evil").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	f.Do(t, "GET", services, "", "Cookie", "other").Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
	if got := f.Do(t, "GET", "/v1/whoami", "", "Cookie", "root"); got.Body["tenant"] != "ops" || got.Body["role"] != "operator" {
		t.Errorf("the caller of a cookie is %s; want an operator of ops", got.Text)
	}
	f.Do(t, "GET", "/v1/tokens", "", "Cookie", "root").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	f.Do(t, "GET", "/v1/whoami", "", "Cookie", "evil").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	f.Do(t, "GET", "/v1/whoami", "", "Cookie", "other").Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
	for _, path := range []string{api.SessionPath, api.GatewayPath, api.GatewayPath + "/jobs"} {
		f.Do(t, "GET", path, "", "Cookie", "root")
	}
	if sessions != 3 {
		t.Errorf("%d of 3 WebSockets do not know the cookie; want all", sessions)
	}
}

// TestConsole: browsers find the page from the root, other callers of the root do not, and each
// answer names the build. Foreign pages and names do not reach it.
func TestConsole(t *testing.T) {
	t.Parallel()
	page := fakeConsole(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("page " + r.URL.Path)) })
	f := apitest.New(t, api.Config{}, func(d *api.Deps) { d.Console = page })
	const browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	if got := f.Do(t, "GET", "/", "", "Accept", browser); got.Status != http.StatusSeeOther || got.Header.Get("Location") != "console/" {
		t.Errorf("a browser at / is answered %d to %q; want 303 to console/", got.Status, got.Header.Get("Location"))
	}
	f.Do(t, "GET", "/", "", "Accept", "*/*").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	f.Do(t, "GET", "/consoles", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	for _, path := range []string{"/console", "/console/", "/console/a/b"} {
		if got := f.Do(t, "GET", path, ""); got.Text != "page "+path {
			t.Errorf("%s is answered %d %s; want the page", path, got.Status, got.Text)
		}
		f.Do(t, "GET", path, "", "Host", "evil.example").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
		f.Do(t, "POST", path, "", "Origin", "https://evil.example").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	}
	for path, build := range map[string]string{"/console/": "test", "/v1/nodes": "test"} {
		if got := f.Do(t, "GET", path, "").Header.Get(api.BuildHeader); got != build {
			t.Errorf("%s names the build %q; want %q", path, got, build)
		}
	}
	without := apitest.New(t, api.Config{})
	without.Do(t, "GET", "/", "", "Accept", browser).Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
	without.Do(t, "GET", "/console/", "").Refusal(t, http.StatusNotFound, freeslot.CodeNotFound)
}

// TestConsolePanics: a panic in the console is answered and logged like others.
func TestConsolePanics(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, func(d *api.Deps) {
		d.Console = fakeConsole(func(http.ResponseWriter, *http.Request) { panic("console") })
	})
	f.Do(t, "GET", "/console/", "").Refusal(t, http.StatusInternalServerError, freeslot.CodeInternal)
}

// TestPayloadsHidden: where payloads are hidden, a caller of the console gets neither submissions
// nor results, by no route; a caller with a token gets them.
func TestPayloadsHidden(t *testing.T) {
	t.Parallel()
	const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	done := freeslot.JobStatus{ID: apitest.JobID, Tenant: "acme", State: freeslot.StateSucceeded, Result: []byte(`"secret"`)}
	for _, hide := range []bool{false, true} {
		f := apitest.New(t, api.Config{HidePayloads: hide}, apitest.WithTokens, func(d *api.Deps) { d.Console = fakeConsole(nil) })
		f.Jobs.OnJob = func(string, string) (freeslot.JobStatus, error) { return done, nil }
		f.Jobs.OnList = func(cell.JobFilter, string, int) (cell.JobPage, error) {
			return cell.JobPage{Jobs: []freeslot.JobStatus{done}}, nil
		}
		f.Jobs.OnSpec = func(string) (*freeslot.Job, string, error) {
			return &freeslot.Job{Service: "tts", Payload: []byte(`"secret"`), TraceParent: traceparent}, "acme", nil
		}
		for _, call := range []struct{ method, path string }{
			{"GET", "/v1/jobs"},
			{"GET", "/v1/jobs/" + apitest.JobID},
			{"POST", "/v1/jobs/" + apitest.JobID + "/cancel"},
			{"GET", "/v1/jobs/" + apitest.JobID + "/explain"},
			{"GET", "/v1/jobs/" + apitest.JobID + "/spec"},
			{"POST", "/v1/jobs"}, // whose idempotency key may be the one of a job that has ended
		} {
			spec, body := strings.HasSuffix(call.path, "/spec"), ""
			if call.path == "/v1/jobs" && call.method == "POST" {
				body = ttsJob
			}
			got := f.Do(t, call.method, call.path, body, "Cookie", "root")
			if seen := strings.Contains(got.Text, "secret"); seen == hide || spec && hide != (got.Status == http.StatusForbidden) {
				t.Errorf("hidden %v: %s %s answers the console %d %s; want it to show what is secret: %v", hide, call.method, call.path, got.Status, got.Text, !hide)
			}
			if strings.HasSuffix(call.path, "/explain") && got.Body["trace_id"] != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("the trace is %v; want the one of the submission", got.Body["trace_id"])
			}
			got = f.Do(t, call.method, call.path, body, "Authorization", "Bearer root-token")
			if !strings.Contains(got.Text, "secret") {
				t.Errorf("hidden %v: %s %s answers a token %d %s; want what is secret", hide, call.method, call.path, got.Status, got.Text)
			}
		}
	}
}

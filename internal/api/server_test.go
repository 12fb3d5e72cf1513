package api_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/testing/apitest"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func stop(t *testing.T, f *apitest.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waittest.Limit)
	defer cancel()
	if err := f.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func TestStartStop(t *testing.T) {
	t.Parallel()
	for range 10 {
		f := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
		url := start(t, f)
		resp, err := http.DefaultTransport.RoundTrip(newRequest(t, "GET", url+"/healthz", ""))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { stop(t, f) })
		}
		wg.Wait()
		soon(t, f.Done(), "the server to end")
		if err := f.Err(); err != nil {
			t.Error(err)
		}
	}
	never := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
	stop(t, never)
	if err := never.Start(t.Context()); err == nil {
		t.Error("a stopped server starts")
	}
}

func TestStartOnTakenPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f := apitest.New(t, api.Config{Listen: l.Addr().String()})
	err = f.Start(t.Context())
	if want := "listen on " + l.Addr().String() + ": bind: address already in use"; err == nil || err.Error() != want {
		t.Errorf("error is %v, expected %s", err, want)
	}
	stop(t, f)
}

func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
	f.Jobs.OnSubmit = func(apitest.Submission) error {
		close(entered)
		<-release
		return nil
	}
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := ask(t, "http://"+f.Addr(), "/v1/jobs")
	soon(t, entered, "the submit")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Stop(ctx); err == nil {
		t.Error("no error although a request was cut off")
	}
	if got := soon(t, answers, "the connection to be cut"); got != nil {
		t.Error("an answer came:", got.Status)
	}
	close(release)
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	var detail string
	f := apitest.New(t, api.Config{}, func(d *api.Deps) {
		d.Checks = []api.Check{{Name: "redis", Ready: func() (bool, string) { return detail == "", detail }}}
	})
	if got := f.Do(t, "GET", "/readyz", ""); got.Status != http.StatusOK || got.Body["ready"] != true {
		t.Error(got.Text)
	}
	detail = "no answer for 3s"
	got := f.Do(t, "GET", "/readyz", "")
	if want := `{"ready":false,"checks":[{"name":"serving","ok":true},{"name":"redis","ok":false,"detail":"no answer for 3s"}]}`; got.Status != http.StatusServiceUnavailable || strings.TrimSpace(got.Text) != want {
		t.Errorf("%d %s; want got.Status == http.StatusServiceUnavailable, strings.TrimSpace(got.Text) == %v", got.Status, got.Text, want)
	}
	detail = ""
	f.Drain()
	got = f.Do(t, "GET", "/readyz", "")
	if got.Status != http.StatusServiceUnavailable || !strings.Contains(got.Text, "stopping") {
		t.Errorf(`%d %s; want got.Status == http.StatusServiceUnavailable, strings.Contains(got.Text, "stopping")`, got.Status, got.Text)
	}
	if got := f.Do(t, "GET", "/healthz", ""); got.Status != http.StatusOK || got.Body["replica"] != "r1" {
		t.Error("a draining replica is alive:", got.Text)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Do(t, "GET", "/v1/jobs/"+apitest.JobID, "")
	f.Do(t, "GET", "/v1/nowhere", "")
	got := f.Do(t, "GET", "/metrics", "")
	for _, want := range []string{
		`freeslot_http_requests_total{route="GET /v1/jobs/{id}",status="200"} 1`,
		`freeslot_http_requests_total{route="none",status="404"} 1`,
		"freeslot_http_waits 0",
	} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("no %s in\n%s", want, got.Text)
		}
	}
}

// TestMetricsAuth: where metrics ask for a token, clients have none that opens them.
func TestMetricsAuth(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{MetricsAuth: true}, apitest.WithTokens)
	f.Do(t, "GET", "/metrics", "").Refusal(t, http.StatusUnauthorized, freeslot.CodeUnauthenticated)
	f.Do(t, "GET", "/metrics", "", "Authorization", "Bearer acme-token").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
	if got := f.Do(t, "GET", "/metrics", "", "Authorization", "Bearer root-token"); !strings.Contains(got.Text, "freeslot_http_waits 0") {
		t.Errorf("an operator gets %d %s, expected metrics", got.Status, got.Text)
	}
}

// TestMetricsListen: an address of their own has the metrics and the probes, and nothing else,
// until the server has stopped. The main address has no metrics then.
func TestMetricsListen(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0", MetricsListen: "127.0.0.1:0"}, apitest.WithTokens)
	main := start(t, f)
	monitor := "http://" + f.MetricsAddr()
	for url, want := range map[string]int{
		monitor + "/metrics": http.StatusOK, monitor + "/healthz": http.StatusOK, monitor + "/readyz": http.StatusOK,
		monitor + "/v1/jobs": http.StatusNotFound, main + "/metrics": http.StatusNotFound, main + "/readyz": http.StatusOK,
	} {
		req := newRequest(t, "GET", url, "")
		req.Close = true
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s answers %d, expected %d", url, resp.StatusCode, want)
		}
	}
	stop(t, f)
	if resp, err := http.DefaultTransport.RoundTrip(newRequest(t, "GET", monitor+"/healthz", "")); err == nil {
		resp.Body.Close()
		t.Error("monitoring answers after Stop")
	}
}

// TestNoStore: no cache keeps an answer, nor a refusal.
func TestNoStore(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{}, apitest.WithTokens)
	for path, token := range map[string]string{
		"/v1/jobs/" + apitest.JobID: "acme-token", "/v1/jobs": "", "/v1/nowhere": "root-token", "/readyz": "",
	} {
		if got := f.Do(t, "GET", path, "", "Authorization", "Bearer "+token).Header["Cache-Control"]; len(got) != 1 || got[0] != "no-store" {
			t.Errorf("%s has Cache-Control %q, expected no-store", path, got)
		}
	}
}

// TestReadDeadlineIsLifted: a deadline that stayed would end a waiting request.
func TestReadDeadlineIsLifted(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/jobs", strings.NewReader(ttsJob))
	r.Host = "127.0.0.1:7480"
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	f.Handler().ServeHTTP(w, r)
	if len(w.set) != 2 || w.set[0].IsZero() || !w.set[1].IsZero() {
		t.Errorf("deadlines are %v, expected one and then none", w.set)
	}
}

type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.set = append(d.set, t)
	return nil
}

func TestSessionsAreServedBesides(t *testing.T) {
	t.Parallel()
	served := false
	f := apitest.New(t, api.Config{}, apitest.WithTokens, func(d *api.Deps) {
		d.Sessions = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			served = true
			if _, ok := w.(*httptest.ResponseRecorder); !ok {
				t.Errorf("the WebSocket handler got a wrapped %T, which cannot be hijacked", w)
			}
		})
	})
	f.Do(t, "GET", "/v1/ws", "")
	if !served {
		t.Error("not served")
	}
	f.Do(t, "GET", "/v1/ws", "", "Origin", "https://evil.example").Refusal(t, http.StatusForbidden, freeslot.CodePermissionDenied)
}

// TestGateway: requests of agents pass neither the guard of hosts nor the bound of bodies. Only the
// gateway's paths are so.
func TestGateway(t *testing.T) {
	t.Parallel()
	gateway := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	open := apitest.New(t, api.Config{}, func(d *api.Deps) { d.Gateway = gateway })
	without := apitest.New(t, api.Config{}, apitest.WithTokens)
	for path, there := range map[string]bool{
		"/v1/node": true, "/v1/node?x=1": true, "/v1/node/complete": true, "/v1/node/spec": true, "/v1/node/x/y": true,
		"/v1/nodes": false, "/v1/nodes/node": false, "/v1/nod": false, "/v1/node2": false, "/v1/Node": false, "/x/v1/node": false,
	} {
		got := open.Do(t, "POST", path, "{}", "Host", "scheduler.example.com")
		if (got.Status == http.StatusTeapot) != there {
			t.Errorf("%s is answered with %d", path, got.Status)
		}
		if there && got.Header.Get("Connection") != "" {
			t.Errorf("%s has the bound of bodies", path)
		}
		if got := without.Do(t, "POST", path, "{}", "Authorization", "Bearer ops-token"); there && got.Status != http.StatusNotFound {
			t.Errorf("without a gateway %s is answered with %d", path, got.Status)
		}
	}
}

package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/testing/apitest"
)

// ask sends a waiting submit to a running server and returns its answer later.
func ask(t *testing.T, url, target string) <-chan *http.Response {
	t.Helper()
	answers := make(chan *http.Response, 1)
	go func() {
		defer close(answers)
		resp, err := http.DefaultTransport.RoundTrip(newRequest(t, "POST", url+target, ttsJob))
		if err != nil {
			t.Log(err)
			return
		}
		resp.Body.Close()
		answers <- resp
	}()
	return answers
}

func newRequest(t *testing.T, method, url, content string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true // no idle connection may outlive the test
	return r
}

func start(t *testing.T, f *apitest.Server) string {
	t.Helper()
	if err := f.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, f) })
	return "http://" + f.Addr()
}

func TestWaitForResult(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
	url := start(t, f)
	answers := ask(t, url, "/v1/jobs?wait_ms=60000")
	soon(t, f.Jobs.Sinks, "the submit").Result(apitest.Succeeded())
	if got := soon(t, answers, "the answer"); got == nil || got.StatusCode != http.StatusOK {
		t.Errorf("answer is %+v, expected 200", got)
	}
	if got := f.Jobs.Forgets(); got != 0 {
		t.Error("Forget, which looks at every job, was called although the result came")
	}
}

func TestWaitIsOver(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	got := f.Do(t, "POST", "/v1/jobs?wait_ms=1", ttsJob)
	if got.Status != http.StatusAccepted || got.Body["state"] != "running" {
		t.Errorf("answer is %d %s", got.Status, got.Text)
	}
	if got := f.Jobs.Forgets(); got != 1 {
		t.Error("the sink of a request that has ended was not forgotten")
	}
	// The job ended at this very moment: the record has its end.
	f.Jobs.OnJob = func(string, string) (freeslot.JobStatus, error) { return apitest.Succeeded(), nil }
	if got := f.Do(t, "POST", "/v1/jobs?wait_ms=1", ttsJob); got.Status != http.StatusOK || got.Body["state"] != "succeeded" {
		t.Errorf("answer is %d %s", got.Status, got.Text)
	}
}

func TestWaitEndsWhenAnotherAttaches(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
	answers := ask(t, start(t, f), "/v1/jobs?wait_ms=60000")
	soon(t, f.Jobs.Sinks, "the submit").Detached(apitest.JobID)
	if got := soon(t, answers, "the answer"); got == nil || got.StatusCode != http.StatusAccepted {
		t.Errorf("answer is %+v, expected 202", got)
	}
}

func TestWaitEndsWithDrain(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0"})
	answers := ask(t, start(t, f), "/v1/jobs?wait_ms=60000")
	soon(t, f.Jobs.Sinks, "the submit")
	f.Drain()
	if got := soon(t, answers, "the answer"); got == nil || got.StatusCode != http.StatusAccepted {
		t.Errorf("answer is %+v, expected 202", got)
	}
	f.Do(t, "POST", "/v1/jobs", ttsJob).Refusal(t, http.StatusServiceUnavailable, freeslot.CodeUnavailable)
}

func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{Listen: "127.0.0.1:0", MaxWaits: 1})
	answers := ask(t, start(t, f), "/v1/jobs?wait_ms=60000")
	sink := soon(t, f.Jobs.Sinks, "the submit")
	f.Do(t, "POST", "/v1/jobs?wait_ms=60000", ttsJob).Refusal(t, http.StatusTooManyRequests, freeslot.CodeOverloaded)
	if got := f.Do(t, "POST", "/v1/jobs", ttsJob); got.Status != http.StatusAccepted {
		t.Error("a submit that does not wait is refused:", got.Text)
	}
	sink.Result(apitest.Succeeded())
	soon(t, answers, "the answer")
}

func TestSinksNeverBlock(t *testing.T) {
	t.Parallel()
	f := apitest.New(t, api.Config{})
	f.Do(t, "POST", "/v1/jobs?wait_ms=1", ttsJob)
	sink := soon(t, f.Jobs.Sinks, "the submit")
	for range 3 {
		sink.Result(apitest.Succeeded())
		sink.Detached(apitest.JobID)
	}
}

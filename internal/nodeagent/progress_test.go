//go:build unix

package nodeagent

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// until reads a job's status until it is as expected.
func (f *fleet) until(jobID string, expected func(freeslot.JobStatus) bool) freeslot.JobStatus {
	f.t.Helper()
	var s freeslot.JobStatus
	waittest.Until(f.t, "another status of job "+jobID, func() bool {
		var err error
		if s, err = f.cell.Job(f.t.Context(), "", jobID); err != nil {
			f.t.Fatal(err)
		}
		return expected(s)
	}, func() any { return s })
	return s
}

func ended(s freeslot.JobStatus) bool { return s.State.Terminal() }

// The progress of services and commands is in the job's status while they run.
func TestAgentTellsProgress(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sse := strings.HasSuffix(r.URL.Path, "sse")
		w.Header().Set("Content-Type", map[bool]string{true: "text/event-stream", false: "application/jsonl"}[sse])
		say := func(kind, data string) {
			if sse {
				_, _ = io.WriteString(w, "event: "+kind+"\ndata: "+data+"\n\n")
			} else {
				_, _ = io.WriteString(w, `{"`+kind+`":`+data+"}\n")
			}
			_ = http.NewResponseController(w).Flush() // the agent has it or is gone
		}
		_, _ = io.Copy(io.Discard, r.Body)
		say("progress", `{"step": 1}`)
		<-release
		say("result", `"done"`)
	}))
	t.Cleanup(server.Close)
	path := fifo(t)
	f := startFleet(
		t,
		Service{Name: "ndjson", HTTP: &HTTP{URL: server.URL + "/ndjson"}},
		Service{Name: "sse", HTTP: &HTTP{URL: server.URL + "/sse"}},
		Service{Name: "command", Command: &Command{Argv: []string{"sh", "-c", `echo '{"step": 1}' >&3; read x <"$FIFO"; printf '"done"'`}, Env: map[string]string{"FIFO": path}}},
	)
	for _, service := range []string{"ndjson", "sse", "command"} {
		job := f.submit(freeslot.Job{Service: service})
		s := f.until(job, func(s freeslot.JobStatus) bool { return s.Progress != nil })
		if string(s.Progress.Value) != `{"step":1}` || s.State != freeslot.StateRunning {
			t.Errorf("%s: %+v, %s; want string(s.Progress.Value) == `{\"step\":1}`, s.State == freeslot.StateRunning", service, s, s.Progress.Value)
		}
		if service == "command" {
			if err := os.WriteFile(path, []byte("go\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		} else {
			release <- struct{}{}
		}
		if s := f.until(job, ended); string(s.Result) != `"done"` {
			t.Errorf("%s: %+v; want string(s.Result) == `\"done\"`", service, s)
		}
	}
}

// A service that reports progress outlives the job's progress_timeout_ms; one that hangs does not.
func TestAgentProgressTimeout(t *testing.T) {
	t.Parallel()
	f := startFleet(
		t,
		Service{Name: "lively", Command: &Command{Argv: []string{"sh", "-c", `i=0; while [ $i -lt 15 ]; do echo $i >&3; i=$((i+1)); sleep 0.1; done; echo 1`}}},
		Service{Name: "hung", Command: &Command{Argv: []string{"sh", "-c", `echo 1 >&3; exec sleep 1000`}}},
	)
	lively := f.submit(freeslot.Job{Service: "lively", ProgressTimeoutMS: 1000, MaxAttempts: 1})
	hung := f.submit(freeslot.Job{Service: "hung", ProgressTimeoutMS: 500, MaxAttempts: 1})
	if s := f.until(hung, ended); s.State != freeslot.StateDead || s.Error == nil || s.Error.Code != freeslot.JobErrorStalled {
		t.Errorf("%+v; want s.State == freeslot.StateDead, s.Error != nil, s.Error.Code == freeslot.JobErrorStalled", s)
	}
	if s := f.until(lively, ended); s.State != freeslot.StateSucceeded {
		t.Errorf("%+v %+v; want s.State == freeslot.StateSucceeded", s, s.Error)
	}
}

// panicking is a transport that has a bug.
type panicking struct{}

func (panicking) RoundTrip(*http.Request) (*http.Response, error) { panic("a bug in an executor") }

// A panic fails only its own job, and the agent runs on.
func TestAgentOutlivesAPanic(t *testing.T) {
	t.Parallel()
	f := startFleet(t, Service{Name: "bug", HTTP: &HTTP{URL: "http://127.0.0.1:1"}}, Service{Name: "cat", Command: &Command{Argv: []string{"cat"}}})
	f.agent.services["bug"].http.client.Transport = panicking{} // before the first job
	for range 2 {
		if s := f.end(f.submit(freeslot.Job{Service: "bug"})); s.State != freeslot.StateFailed || s.Error.Code != freeslot.JobErrorPanic || !strings.Contains(s.Error.Message, "a bug in an executor") {
			t.Errorf(`%+v; want s.State == freeslot.StateFailed, s.Error.Code == freeslot.JobErrorPanic, strings.Contains(s.Error.Message, "a bug in an executor")`, s)
		}
	}
	if s := f.end(f.submit(freeslot.Job{Service: "cat", Payload: json.RawMessage(`1`)})); string(s.Result) != `1` {
		t.Errorf("%+v; want string(s.Result) == `1`", s)
	}
}

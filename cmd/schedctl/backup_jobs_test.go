package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
	"github.com/freeslot/freeslot/cmd/schedctl/archive"
)

// replicaFunc answers requests in place of a replica, without a network, so that pauses take no
// time within synctest.Test.
type replicaFunc func(r *http.Request) (status int, body string)

// RoundTrip implements http.RoundTripper.
func (f replicaFunc) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := f(r)
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// asking returns a program that asks this replica.
func asking(t *testing.T, f replicaFunc) *app {
	t.Helper()
	c, err := newAPIClient("http://replica", "", client.TLS{})
	must(t, err)
	c.http = &http.Client{Transport: f}
	env := &environment{ctx: t.Context(), in: strings.NewReader(""), out: new(buffer), err: new(buffer)}
	return &app{environment: env, api: c}
}

// TestBackupOfAllJobs: jobs that end, move, or come twice while they are listed hide no others, and
// the listing ends with the ones that have not ended.
func TestBackupOfAllJobs(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"": `{"jobs":[{"job_id":"0-a","state":"waiting"},{"job_id":"0-moves","state":"moving"},
			{"job_id":"0-b","state":"succeeded"},{"job_id":"0-c","state":"running"}],"cursor":"2"}`,
		"2": `{"jobs":[{"job_id":"0-a","state":"running"},{"job_id":"0-moves","state":"waiting"},
			{"job_id":"0-d","state":"cancelling"},{"job_id":"0-e","state":"running"},{"job_id":"0-f","state":"succeeded"},
			{"job_id":"0-g","state":"running"}],"cursor":"3","since_ms":5}`,
	}
	moved := 0
	a := asking(t, func(r *http.Request) (int, string) {
		if r.URL.Path == "/v1/jobs" {
			page := pages[r.URL.Query().Get("cursor")]
			if page == "" {
				t.Errorf("%s asks for jobs that have ended", r.URL)
			}
			return http.StatusOK, page
		}
		if moved++; strings.Contains(r.URL.Path, "moves") && moved == 2 {
			return http.StatusNotFound, `{"code":"not_found","message":"it moves"}`
		}
		return http.StatusOK, `{"tenant":"acme","job":{"service":"echo"}}`
	})
	if got, want := jobsOf(t, a), []string{"0-a", "0-c", "0-moves", "0-e", "0-g"}; !slices.Equal(got, want) {
		t.Errorf("jobs %v, expected %v", got, want)
	}
}

// jobsOf returns the ids of the jobs that a backup has.
func jobsOf(t *testing.T, a *app) (ids []string) {
	t.Helper()
	var out bytes.Buffer
	w, err := archive.NewWriter(&out, archive.Header{ID: "7f", AtMS: 1, Release: "v1"})
	must(t, err)
	b := &backup{app: a, withJobs: true, w: w, counts: make(map[string]int64)}
	must(t, b.jobs())
	must(t, w.Close())
	r, err := archive.NewReader(&out)
	must(t, err)
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return ids
		}
		must(t, err)
		var j jobRecord
		must(t, decode(record, &j))
		ids = append(ids, j.ID)
	}
}

// TestBackupWaitsForCells: a page without the jobs of a cell is asked for again.
func TestBackupWaitsForCells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		a := asking(t, func(r *http.Request) (int, string) {
			if r.URL.Path != "/v1/jobs" {
				return http.StatusOK, `{"tenant":"acme","job":{"service":"echo"}}`
			}
			if asked++; asked <= patience {
				return http.StatusOK, `{"jobs":[],"unreachable":[1]}`
			}
			return http.StatusOK, `{"jobs":[{"job_id":"1-a","state":"running"}]}`
		})
		if got := jobsOf(t, a); !slices.Equal(got, []string{"1-a"}) {
			t.Errorf("jobs %v, expected the one of the cell that did not answer at first", got)
		}
	})
}

// TestRestoreAsksAllCells: a system whose cells do not all answer does not count as empty.
func TestRestoreAsksAllCells(t *testing.T) {
	t.Parallel()
	r := &restore{app: asking(t, func(r *http.Request) (int, string) {
		if r.URL.Path == "/v1/jobs" {
			return http.StatusOK, `{"jobs":[],"unreachable":[1]}`
		}
		return http.StatusOK, `{}`
	})}
	if err := r.empty(); freeslot.CodeOf(err) != freeslot.CodeUnavailable {
		t.Errorf("error is %v, expected the code unavailable", err)
	}
}

// TestRestoreOfBusySystem: a job that is refused for the moment is named, and what follows is
// restored. A job that an earlier run made counts as there.
func TestRestoreOfBusySystem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var file bytes.Buffer
		w, err := archive.NewWriter(&file, archive.Header{ID: "7f", AtMS: 1, Release: "v1"})
		must(t, err)
		for i, id := range []string{"0-full", "0-made", "0-away", "0-new"} {
			text := fmt.Sprintf(`{"id":%q,"tenant":"acme","job":{"service":"echo","payload":"<%d&>"}}`, id, i)
			must(t, w.Write(kindJob, json.RawMessage(text)))
		}
		must(t, w.Write(kindSchedule, json.RawMessage(`{"name":"nightly","tenant":"acme","schedule":{"cron":"@daily","job":{"service":"echo"}}}`)))
		must(t, w.Close())
		var calls []string
		a := asking(t, func(r *http.Request) (int, string) {
			body, err := io.ReadAll(r.Body)
			must(t, err)
			switch text := string(body); {
			case r.URL.Path == "/v1/tokens":
				return http.StatusOK, `{}`
			case r.Method == http.MethodPut:
				calls = append(calls, "schedule")
				return http.StatusOK, `{}`
			case strings.Contains(text, `"<0&>"`):
				calls = append(calls, "full")
				return http.StatusServiceUnavailable, `{"code":"overloaded","message":"the queue is full"}`
			case strings.Contains(text, `"<1&>"`):
				calls = append(calls, "made")
				return http.StatusConflict, `{"code":"conflict","field":"job.idempotency_key","message":"it was used"}`
			case strings.Contains(text, `"<2&>"`):
				calls = append(calls, "away")
				return http.StatusServiceUnavailable, `{"code":"unavailable","message":"no node fits yet"}`
			default:
				calls = append(calls, "new")
				return http.StatusAccepted, `{}`
			}
		})
		in, err := archive.NewReader(&file)
		must(t, err)
		r := &restore{app: a, in: in, report: restoreReport{Again: true}}
		must(t, r.all())
		want := append(slices.Repeat([]string{"full"}, patience+1), "made", "away", "new", "schedule")
		if !slices.Equal(calls, want) {
			t.Errorf("calls %v, expected %v", calls, want)
		}
		jobs, schedules := *r.report.count(kindJob), *r.report.count(kindSchedule)
		if jobs != (restoreCount{kindJob, 1, 1, 2}) || schedules.Restored != 1 || len(r.report.Problems) != 2 {
			t.Errorf("%+v, %+v, problems %v; want 1 job restored, 1 there, 2 failed, and the schedule", jobs, schedules, r.report.Problems)
		}
	})
}

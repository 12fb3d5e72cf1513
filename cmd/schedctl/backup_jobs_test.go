package main

import (
	"bytes"
	"errors"
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

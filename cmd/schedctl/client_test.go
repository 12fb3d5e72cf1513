package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/freeslot/freeslot"
)

// hung is a replica that takes requests and never answers.
func hung(t *testing.T) string {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	return s.URL
}

// What only reads is asked of the next replica where one does not answer; what may have been done is not.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"job_id":"0-a","state":"running"}`))
	}))
	t.Cleanup(well.Close)
	c, err := newAPIClient(hung(t)+","+well.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	c.timeout = 2 * time.Second
	var status freeslot.JobStatus
	if err := c.call(t.Context(), http.MethodPost, "/v1/jobs", nil, []byte("{}"), 0, &status); err == nil || !strings.Contains(err.Error(), "no answer in time") || asked.Load() != 0 {
		t.Errorf("submit: %v, %d asked besides", err, asked.Load())
	}
	c.timeout = 10 * time.Second // which the second has half of
	if status, err = c.job(t.Context(), "0-a"); err != nil || status.State != freeslot.StateRunning {
		t.Errorf("status: %+v, %v", status, err)
	}
}

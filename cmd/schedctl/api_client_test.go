package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/client"
)

// hung is a replica that accepts requests and never answers.
func hung(t *testing.T) string {
	t.Helper()
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-end }))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	return s.URL
}

// When a replica does not answer, a reading request goes to the next one. A request that may have
// been carried out does not.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"job_id":"0-a","state":"running"}`))
	}))
	t.Cleanup(well.Close)
	c, err := newAPIClient(hung(t)+","+well.URL, "", client.TLS{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	c.timeout = 2 * time.Second
	var status freeslot.JobStatus
	if err := c.call(t.Context(), http.MethodPost, "/v1/jobs", nil, []byte("{}"), 0, &status); err == nil || !strings.Contains(err.Error(), "no answer in time") || asked.Load() != 0 {
		t.Errorf("submit: %v, %d asked besides", err, asked.Load())
	}
	c.timeout = 10 * time.Second // the first has half of it
	if status, err = c.job(t.Context(), "0-a"); err != nil || status.State != freeslot.StateRunning {
		t.Errorf("status: %+v, %v", status, err)
	}
}

// replicas answer by the name of their host: "hangs" never; "late" that Redis is away, after the
// wait of a replica; "lost" refuses connections; "well" at once.
type replicas struct{ asked []string }

func (r *replicas) RoundTrip(req *http.Request) (*http.Response, error) {
	name, _, _ := strings.Cut(req.URL.Host, ".")
	r.asked = append(r.asked, name)
	code, body, delay := http.StatusOK, `{"job_id":"0-a","state":"running"}`, time.Duration(0)
	switch name {
	case "hangs":
		delay = time.Hour
	case "lost":
		delay = 5100 * time.Millisecond // of the dialer
	case "late":
		code, body, delay = http.StatusServiceUnavailable, `{"code":"unavailable","message":"Redis is away"}`, 5100*time.Millisecond
	}
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case <-time.After(delay):
	}
	if name == "lost" {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
	}
	return &http.Response{StatusCode: code, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// For any number of servers, each has more time than a replica needs to report that it cannot
// answer.
func TestShares(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		method, servers string
		asked           int
		code            freeslot.Code // "" for an answer
		took            time.Duration
	}{
		"the second":               {http.MethodGet, "hangs,well", 2, "", 7500 * time.Millisecond},
		"the last of four":         {http.MethodGet, "hangs,hangs.b,hangs.c,well", 4, "", 22500 * time.Millisecond},
		"what is left is shared":   {http.MethodGet, "lost,hangs,well", 3, "", 13800 * time.Millisecond},
		"a refusal is heard":       {http.MethodGet, "late,well", 1, freeslot.CodeUnavailable, 5100 * time.Millisecond},
		"of three":                 {http.MethodGet, "late,late.b,late.c", 1, freeslot.CodeUnavailable, 5100 * time.Millisecond},
		"of the last of four":      {http.MethodGet, "hangs,hangs.b,hangs.c,late", 4, freeslot.CodeUnavailable, 27600 * time.Millisecond},
		"nothing was sent to four": {http.MethodPost, "lost,lost.b,lost.c,well", 4, "", 15300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, err := newAPIClient(tt.servers, "", client.TLS{})
				if err != nil {
					t.Fatal(err)
				}
				fleet := new(replicas)
				c.http.Transport = fleet
				begin := time.Now()
				var status freeslot.JobStatus
				err = c.call(t.Context(), tt.method, "/v1/jobs/0-a", nil, nil, 0, &status)
				var refusal *freeslot.Error
				if errors.As(err, &refusal); (tt.code == "") != (err == nil) || tt.code != "" && (refusal == nil || refusal.Code != tt.code) {
					t.Errorf(`%+v, %v; want (tt.code == "") == (err == nil), tt.code == "" or (refusal != nil and refusal.Code == %v)`, status, err, tt.code)
				}
				if took := time.Since(begin); took != tt.took || len(fleet.asked) != tt.asked {
					t.Errorf("%q were asked, in %s", fleet.asked, took)
				}
			})
		})
	}
}

// A request that may have been carried out gets no more time because of other servers.
func TestNoShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, err := newAPIClient("hangs,well,well.b,well.c", "", client.TLS{})
		if err != nil {
			t.Fatal(err)
		}
		fleet := new(replicas)
		c.http.Transport = fleet
		begin := time.Now()
		err = c.call(t.Context(), http.MethodPost, "/v1/jobs", nil, []byte("{}"), time.Second, nil)
		if took := time.Since(begin); err == nil || took != callTimeout+time.Second || len(fleet.asked) != 1 {
			t.Errorf("%v after %s, of %q", err, took, fleet.asked)
		}
	})
}

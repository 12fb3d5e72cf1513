package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/freeslot/freeslot/internal/process/metrics"
	"github.com/freeslot/freeslot/internal/replica"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/selection"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestPoolsOfAllReplicas: a configuration that one replica applies is in force at all others, and
// wins over their files.
func TestPoolsOfAllReplicas(t *testing.T) {
	t.Parallel()
	var cfg config.Replica
	first := startSystem(t, func(c *config.Replica) {
		c.Pools = selection.Pools{{ID: "of-file", Services: []string{"echo"}}}
		cfg = *c
	})
	cfg.ReplicaID, cfg.DrainTimeout = "second", 10*time.Second
	r := replica.New(cfg, zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), metrics.NewRegistry())
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := &system{replica: r, url: "http://" + r.Addr()}
	t.Cleanup(func() { second.stop(t) })
	second.await(t, "node-1")

	pools := func(s *system) string {
		t.Helper()
		status, body := s.call(t, http.MethodGet, "/v1/pools", "")
		list, _ := body["pools"].([]any)
		out := fmt.Sprint(status, " version ", body["version"])
		for _, p := range list {
			p, _ := p.(map[string]any)
			out += fmt.Sprint(" ", p["id"], p["nodes"])
		}
		return out
	}
	for _, s := range []*system{first, second} {
		if got := pools(s); got != "200 version 0 of-file[node-1]" {
			t.Error(got)
		}
	}
	status, body := first.call(t, http.MethodPut, "/v1/config", `{"version":0,"config":{"enabled":true,"pools":[{"id":"by-label","labels":{"zone":"eu"}},{"id":"named","members":["node-1"]}]}}`)
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	const want = "200 version 1 by-label[] named[node-1]"
	if got := pools(first); got != want {
		t.Error(got)
	}
	waittest.Until(t, "the second replica to have "+want, func() bool { return pools(second) == want }, func() any { return pools(second) })
	// Jobs follow: the pool of the file has no members any more.
	for _, s := range []*system{first, second} {
		if status, body := s.call(t, http.MethodPost, "/v1/jobs?wait_ms=10000", `{"service":"echo","requirement":{"pool":"named"}}`); status != http.StatusOK {
			t.Error(status, body)
		}
		if status, body := s.call(t, http.MethodPost, "/v1/jobs", `{"service":"echo","requirement":{"pool":"of-file"}}`); status != http.StatusUnprocessableEntity {
			t.Error(status, body)
		}
		if status, body := s.call(t, http.MethodGet, "/readyz", ""); status != http.StatusOK {
			t.Error(status, body)
		}
	}
}

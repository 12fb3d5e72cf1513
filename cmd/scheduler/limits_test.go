package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestTenantLimits: the limits of one tenant do not affect the others.
func TestTenantLimits(t *testing.T) {
	t.Parallel()
	s := startSystem(t, func(cfg *config.Replica) {
		cfg.Tenants = map[string]config.Tenant{"small": {MaxRunning: 1, MaxWaiting: 2}}
		cfg.Tokens = []config.Token{{Token: "small", Tenant: "small"}, {Token: "other", Tenant: "other"}, {Token: "root", Tenant: "ops", Role: identity.Operator}}
	})
	submit := func(token, job string) (int, map[string]any) {
		t.Helper()
		return s.call(t, "POST", "/v1/jobs", job, "Authorization", "Bearer "+token)
	}
	const job = `{"service":"block"}`
	var ids []any
	for i, state := range []string{"running", "waiting", "waiting"} {
		if status, got := submit("small", job); status != http.StatusAccepted || got["state"] != state {
			t.Errorf("job %d, expected to be %s: %d %v", i, state, status, got)
		} else {
			ids = append(ids, got["job_id"])
		}
	}
	if status, got := submit("small", job); status != http.StatusTooManyRequests || got["code"] != "overloaded" || got["retry_after_ms"] == nil {
		t.Error("beyond the limit:", status, got)
	}
	if status, got := submit("other", `{"service":"block","concurrency_key":"k","concurrency_limit":2}`); status != http.StatusAccepted || got["state"] != "running" {
		t.Error("another tenant:", status, got)
	}
	if status, got := submit("other", `{"service":"block","concurrency_limit":2}`); status != http.StatusBadRequest || got["field"] != "job.concurrency_limit" && got["field"] != "body.concurrency_limit" {
		t.Error("a limit without a key:", status, got)
	}
	close(s.release)
	for _, id := range ids {
		var state any
		waittest.Until(t, fmt.Sprint("the success of job ", id), func() bool {
			_, got := s.call(t, "GET", fmt.Sprint("/v1/jobs/", id), "", "Authorization", "Bearer small")
			state = got["state"]
			return state == "succeeded"
		}, func() any { return state })
	}
}

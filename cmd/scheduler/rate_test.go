package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

// TestSubmitRate: beyond its rate a tenant gets refusals with the time to come again. Other
// tenants, and jobs that an operator submits again, are not affected.
func TestSubmitRate(t *testing.T) {
	t.Parallel()
	s := startSystem(t, func(cfg *config.Replica) {
		cfg.Tenants = map[string]config.Tenant{"small": {SubmitRate: 0.01, SubmitBurst: 2}}
		cfg.Tokens = []config.Token{{Token: "small", Tenant: "small"}, {Token: "other", Tenant: "other"}, {Token: "root", Tenant: "ops", Role: identity.Operator}}
	})
	submit := func(token, path, job string) (int, map[string]any) {
		t.Helper()
		return s.call(t, "POST", path, job, "Authorization", "Bearer "+token)
	}
	_, first := submit("small", "/v1/jobs?wait_ms=20000", `{"service":"block","timeout_ms":50}`)
	if first["state"] != "expired" {
		t.Fatal(first)
	}
	if status, got := submit("small", "/v1/jobs", `{"service":"echo"}`); status != http.StatusAccepted && status != http.StatusOK {
		t.Error(status, got)
	}
	status, got := submit("small", "/v1/jobs", `{"service":"echo"}`)
	if ms, _ := got["retry_after_ms"].(float64); status != http.StatusTooManyRequests || got["code"] != "rate_limited" || ms < 50_000 || ms > 101_000 {
		t.Error("beyond the rate:", status, got)
	}
	again := "/v1/jobs/" + first["job_id"].(string) + "/requeue"
	if status, got := submit("small", again, ""); status != http.StatusTooManyRequests {
		t.Error("requeue by the tenant:", status, got)
	}
	if status, got := submit("root", again, ""); status != http.StatusAccepted && status != http.StatusOK {
		t.Error("requeue by an operator:", status, got)
	}
	if status, got := submit("other", "/v1/jobs", `{"service":"echo"}`); status != http.StatusAccepted && status != http.StatusOK {
		t.Error("another tenant:", status, got)
	}
}

// TestAcknowledgeWithoutReplicas: the replica starts, its readiness names what is missing, and it
// refuses jobs at once.
func TestAcknowledgeWithoutReplicas(t *testing.T) {
	t.Parallel()
	s := startSystem(t, func(cfg *config.Replica) { cfg.Acknowledge = config.AcknowledgeReplicated })
	waittest.Until(t, "readiness to name what is missing", func() bool {
		status, body := s.call(t, "GET", "/readyz", "")
		return status == http.StatusServiceUnavailable && strings.Contains(fmt.Sprint(body), "fewer than acknowledge_replicas (1)")
	})
	if status, got := s.call(t, "POST", "/v1/jobs", `{"service":"echo"}`); status != http.StatusServiceUnavailable || got["code"] != "unavailable" {
		t.Error(status, got)
	}
}

package main

import (
	"net/http"
	"testing"

	"github.com/freeslot/freeslot/internal/identity"
	"github.com/freeslot/freeslot/internal/replica/config"
)

// TestWaitingIsConfigured: the limit and the weights reach the code that uses them.
func TestWaitingIsConfigured(t *testing.T) {
	t.Parallel()
	heavy := 1000
	s := startSystem(t, func(cfg *config.Replica) {
		cfg.WaitingLimit = 4
		cfg.Tenants = map[string]config.Tenant{"heavy": {Weight: &heavy}}
		cfg.Tokens = []config.Token{
			{Token: "light", Tenant: "light"}, {Token: "heavy", Tenant: "heavy"}, {Token: "root", Tenant: "ops", Role: identity.Operator},
		}
	})
	const job = `{"service":"block"}`
	submit := func(token, job string) (int, map[string]any) {
		t.Helper()
		return s.call(t, "POST", "/v1/jobs", job, "Authorization", "Bearer "+token)
	}
	if status, got := submit("root", `{"service":"block","slots":4}`); status != http.StatusAccepted || got["position"] != nil {
		t.Fatal(status, got)
	}
	// The second job of each tenant comes after the first jobs of both; the one of the heavier
	// tenant comes soon.
	for i, step := range []struct {
		token    string
		position float64
	}{{"light", 1}, {"light", 2}, {"heavy", 2}, {"heavy", 3}} {
		if _, got := submit(step.token, job); got["state"] != "waiting" || got["position"] != step.position {
			t.Errorf("job %d, of %s, expected at %v: %v", i, step.token, step.position, got)
		}
	}
	if status, got := submit("heavy", job); status != http.StatusTooManyRequests || got["code"] != "overloaded" || got["retry_after_ms"] == nil {
		t.Error("beyond the limit:", status, got)
	}
	close(s.release)
}

package main

import (
	"encoding/json"
	"testing"

	"github.com/freeslot/freeslot/internal/replica/config"
	"github.com/freeslot/freeslot/internal/tenant"
	"github.com/freeslot/freeslot/internal/testing/waittest"
)

func TestTenants(t *testing.T) {
	t.Parallel()
	l := startWith(t, func(c *config.Replica) {
		c.Tenants = map[string]config.Tenant{
			config.DefaultTenant: {MaxRunning: 1, MaxWaiting: 2}, "beta": {SubmitRate: 5},
		}
	})
	for range 3 {
		l.ctl(t, "submit", "block").expect(t, exitOK)
	}
	soon(t, l.started, "a job to begin")
	var list tenant.TenantList
	waittest.Until(t, "the replica to have told its rates", func() bool {
		// Again and again, because rates are those of the last seconds.
		l.ctl(t, "submit", "block").expect(t, exitFailure, "overloaded")
		out := l.ctl(t, "tenants", "ls", "-o", "json").expect(t, exitOK).out
		must(t, json.Unmarshal([]byte(out), &list))
		return list.Tenants[1].Rate > 0 && list.Tenants[1].RefusedRate > 0
	})
	l.ctl(t, "tenants", "ls").expect(t, exitOK, "beta", "0.00 of 5", "default", "1 of 1", "2 of 2", "max_running, max_waiting")
	if own := list.Tenants[1]; *own.Running != 1 || *own.Held != 2 || *own.Waiting != 2 || own.OldestHeldMS == 0 || own.RefusedRate > own.Rate {
		t.Errorf("%+v; want one running job, two held ones that wait, and no more refused than came", own)
	}
	l.ctl(t, "tenants", "ls", "--tenant", "gamma").expect(t, exitOK, "gamma")
	close(l.release)
}

package console

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
)

const (
	// replicaCalls, tenantCalls, operationCalls and scheduleCalls bound the calls of one answer to a
	// cell. tenantCalls is for up to pageTenants tenants.
	replicaCalls   = 1
	tenantCalls    = 2
	pageTenants    = 100
	operationCalls = 1
	scheduleCalls  = 1
)

const scheduleTopic = "schedule"

// systemKinds are the topics of schedules, operations on many jobs, tenants, pools and replicas, by
// name. Clients see what is their tenant's.
var systemKinds = map[string]*kind{
	scheduleTopic: {needs: []string{"get-schedule"}, argument: true, asks: true, compute: schedule},
	"operations": {
		needs: []string{"list-bulk"}, asks: true, compute: parts(part{"", "/v1/bulk", operationCalls, false}),
	},
	"operation": {
		needs: []string{"get-bulk"}, argument: true, asks: true,
		compute: parts(part{"", "/v1/bulk/*", operationCalls, false}),
	},
	"tenants": {needs: []string{"list-tenants"}, asks: true, compute: tenants},
	"tenant": {
		needs: []string{"list-tenants"}, argument: true, asks: true,
		compute: parts(part{"", "/v1/tenants?tenant=*", tenantCalls, false}),
	},
	"replicas": {
		needs: []string{"list-replica-statuses"}, asks: true,
		compute: parts(part{"", "/v1/replicas/status", replicaCalls, false}),
	},
	"pools": {needs: []string{"list-pools"}, every: listPeriod, compute: parts(part{"", "/v1/pools", 0, false})},
	"pool": {
		needs: []string{"get-pool"}, argument: true, every: listPeriod,
		compute: parts(part{"", "/v1/pools/*?limit=1", 0, false}),
	},
}

// schedule shows a schedule with its next five runs. Without a tenant it is the caller's.
func schedule(ctx context.Context, h *hub, t *topic) (any, int, error) {
	_, argument, _ := strings.Cut(t.key.name, ":")
	tenant, name, _ := strings.Cut(argument, ":")
	target := "/v1/schedules/" + url.PathEscape(name) + "?runs=5&tenant=" + url.QueryEscape(tenant)
	data, err := h.answerOf(ctx, t, target)
	return data, scheduleCalls, err
}

// tenants shows all tenants that the viewers may see.
func tenants(ctx context.Context, h *hub, t *topic) (any, int, error) {
	list, err := h.answerOf(ctx, t, "/v1/tenants")
	var size struct {
		Tenants []struct{} `json:"tenants"`
	}
	if err == nil {
		err = json.Unmarshal(list, &size)
	}
	return list, tenantCalls + len(size.Tenants)/pageTenants, err
}

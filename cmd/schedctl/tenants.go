package main

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/tenant"
)

type tenantsCmd struct {
	List tenantsListCmd `cmd:"" name:"ls" help:"List tenants with their limits and what they use of them."`
}

type tenantsListCmd struct {
	ofTenant
}

// Help is shown below the flags.
func (tenantsListCmd) Help() string {
	return `RUNNING and HELD are known of tenants with max_running, WAITING of tenants with max_waiting: only limits count
jobs. JOBS/S and REFUSED/S are the sum of all replicas over the last ten seconds.`
}

// Run lists the tenants.
func (c *tenantsListCmd) Run(a *app) error {
	var list tenant.TenantList
	query := url.Values{}
	setNonEmpty(query, "tenant", c.Tenant)
	if err := a.call(http.MethodGet, "/v1/tenants", query, nil, &list); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	rows := [][]string{{
		"TENANT", "WEIGHT", "RUNNING", "HELD", "WAITING", "JOBS/S", "REFUSED/S", "HELD BACK BY",
	}}
	for _, t := range list.Tenants {
		rate := strconv.FormatFloat(t.Rate, 'f', 2, 64)
		if t.Limits.SubmitRate > 0 {
			rate += " of " + strconv.FormatFloat(t.Limits.SubmitRate, 'f', -1, 64)
		}
		rows = append(rows, []string{
			t.Name, fmt.Sprint(t.Limits.Weight), used(t.Running, t.Limits.MaxRunning), used(t.Held, 0),
			used(t.Waiting, t.Limits.MaxWaiting), rate, strconv.FormatFloat(t.RefusedRate, 'f', 2, 64),
			dash(strings.Join(t.HeldBackBy, ", ")),
		})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	if list.LeftOut > 0 {
		a.warn("%d more tenants of the configuration are not listed; name one by --tenant", list.LeftOut)
	}
	a.warnCells(list.Unreachable)
	return nil
}

// used returns a count and its limit, if it has one.
func used(n *int, limit int) string {
	switch {
	case n == nil:
		return "-"
	case limit == 0:
		return fmt.Sprint(*n)
	default:
		return fmt.Sprintf("%d of %d", *n, limit)
	}
}

package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/audit"
)

type auditCmd struct {
	Since   time.Duration `placeholder:"DURATION" help:"Only changes of this last time, such as 24h."`
	Name    string        `placeholder:"NAME" help:"Only changes by the token of this name."`
	Role    string        `placeholder:"ROLE" help:"Only changes by this role."`
	Tenant  string        `placeholder:"TENANT" help:"Only changes by tokens of this tenant."`
	Call    string        `placeholder:"CALL" help:"Only this operation, such as drain-node."`
	Target  string        `placeholder:"TEXT" help:"Only changes whose path has this in it, such as /nodes/gpu-7."`
	Outcome string        `placeholder:"OUTCOME" help:"Only this outcome: done, unknown, or the code of an error."`
	Limit   int           `default:"100" placeholder:"N" help:"At most this many changes (default ${default})."`
	Follow  bool          `help:"Go on with the changes to come, until Ctrl-C."`
}

// Help is shown below the flags.
func (auditCmd) Help() string {
	return `Every change, except those that a client makes of its own jobs and schedules. The newest comes first; with
--follow, last. With -o json each change is one line, for export: schedctl audit -o json --limit 1000000.
A change is unknown if its replica died before it could record the outcome: it may have been made.`
}

// followInterval is the time between two questions for further changes.
const followInterval = time.Second

// Run lists changes.
func (c *auditCmd) Run(a *app) error {
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	found, err := c.read(a, c.Limit)
	if err != nil || !c.Follow {
		if err == nil {
			err = c.print(a, found, true)
		}
		return err
	}
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	seen, title := map[string]bool{}, true
	for {
		fresh := slices.DeleteFunc(found, func(e api.AuditedChange) bool {
			return seen[e.ID] || e.Outcome == audit.OutcomeUnderWay
		})
		slices.Reverse(fresh)
		for _, e := range fresh {
			seen[e.ID] = true
		}
		if err := c.print(a, fresh, title); err != nil {
			return err
		}
		title = false
		select {
		case <-ticker.C:
		case <-a.ctx.Done():
			return nil // Ctrl-C is the usual end
		}
		// A change may last for minutes, so the last ones are read again each time.
		if found, err = c.read(a, max(c.Limit, maxPage)); err != nil && a.ctx.Err() == nil {
			a.warn("%v", err) // a replica may restart
		}
	}
}

// read returns up to limit changes, the newest first.
func (c *auditCmd) read(a *app, limit int) (all []api.AuditedChange, err error) {
	query := url.Values{}
	for name, value := range map[string]string{
		"name": c.Name, "role": c.Role, "tenant": c.Tenant, "call": c.Call, "target": c.Target, "outcome": c.Outcome,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if c.Since > 0 {
		query.Set("since_ms", strconv.FormatInt(time.Now().Add(-c.Since).UnixMilli(), 10))
	}
	for len(all) < limit {
		query.Set("limit", strconv.Itoa(min(limit-len(all), maxPage)))
		var page api.AuditPage
		if err := a.call(http.MethodGet, "/v1/audit", query, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if page.Cursor == "" {
			break
		}
		query.Set("cursor", page.Cursor)
	}
	return all[:min(len(all), limit)], nil
}

func (c *auditCmd) print(a *app, changes []api.AuditedChange, title bool) error {
	if a.json {
		lines := json.NewEncoder(a.out)
		lines.SetEscapeHTML(false)
		for i := range changes {
			if err := lines.Encode(changes[i]); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	if title {
		rows = [][]string{{"WHEN", "BY", "CALL", "TARGET", "CHANGE", "OUTCOME", "REASON"}}
	}
	for i := range changes {
		e := &changes[i]
		change := e.After
		if e.Before != "" {
			change = e.Before + " -> " + e.After
		}
		rows = append(rows, []string{
			clock(e.AtMS), author(e), e.Call, shorten(e.Target, maxCell), dash(shorten(change, maxCell)), e.Outcome,
			dash(shorten(e.Reason, maxCell)),
		})
	}
	return table(a.out, rows)
}

// author returns the name of the caller's token, or its tenant and role.
func author(e *api.AuditedChange) string {
	if e.Name != "" {
		return e.Name
	}
	return strings.Join([]string{e.Tenant, e.Role}, "/")
}

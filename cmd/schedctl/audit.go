package main

import (
	"encoding/json"
	"maps"
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
	Since   time.Duration `placeholder:"DURATION" help:"Only changes of this last time, such as 24h or 7d."`
	Name    string        `placeholder:"NAME" help:"Only changes by the token of this name."`
	Role    string        `placeholder:"ROLE" help:"Only changes by this role."`
	Tenant  string        `placeholder:"TENANT" help:"Only changes by tokens of this tenant."`
	Call    string        `placeholder:"CALL" help:"Only this operation, such as drain-node."`
	Target  string        `placeholder:"TEXT" help:"Only changes whose path has this in it, such as /nodes/gpu-7."`
	Outcome string        `placeholder:"OUTCOME" help:"Only this outcome: done, dry_run, unknown, or the code of an error."`
	Limit   int           `default:"100" placeholder:"N" help:"At most this many changes (default ${default})."`
	Follow  bool          `help:"Go on with the changes to come, until Ctrl-C."`
}

// Help is shown below the flags.
func (auditCmd) Help() string {
	return `Every change, except those that a client makes of its own jobs. The newest comes first; with
--follow, last. With -o json each change is one line, for export: schedctl audit -o json --limit 1000000.
A change is unknown if its replica died before it could record the outcome: it may have been made.`
}

const (
	// followInterval is the time between two questions for further changes.
	followInterval = time.Second
	// followLimit is how many changes may come between two questions: more than the audit keeps by
	// default.
	followLimit = 50_000
	// longestChange is more than any change takes.
	longestChange = 10 * time.Minute
	// overlap is how far back each question goes, because changes that end in one millisecond come
	// in no order, and Redis' clock may be set back.
	overlap = 10 * time.Second
)

// Run lists changes.
func (c *auditCmd) Run(a *app) error {
	if c.Limit < 1 {
		return usage("--limit is %d, expected at least 1", c.Limit)
	}
	since := int64(0)
	if c.Since > 0 {
		since = time.Now().Add(-c.Since).UnixMilli()
	}
	if c.Follow {
		return c.follow(a, since)
	}
	found, err := c.read(a, c.Limit, since, 0)
	if err != nil {
		return err
	}
	return c.print(a, found, true)
}

// follow prints the newest changes, and then further ones as they end.
func (c *auditCmd) follow(a *app, since int64) error {
	found, err := c.read(a, max(c.Limit, maxPage), since, 0)
	if err != nil {
		return err
	}
	if err := c.print(a, lastOf(found, c.Limit), true); err != nil {
		return err
	}
	var oldest, newest int64
	if newest = time.Now().UnixMilli(); len(found) > 0 {
		oldest, newest = found[len(found)-1].EndedMS, latest(found)
	}
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for seen := idsOf(found); ; {
		select {
		case <-ticker.C:
		case <-a.ctx.Done():
			return nil // Ctrl-C is the usual end
		}
		from := newest - overlap.Milliseconds()
		found, err := c.read(a, followLimit, max(since, newest-longestChange.Milliseconds()), from)
		if err != nil {
			if a.ctx.Err() == nil {
				a.warn("%v", err) // a replica may restart
			}
			continue
		}
		fresh := slices.DeleteFunc(slices.Clone(found), func(e api.AuditedChange) bool {
			return seen[e.ID] || e.EndedMS > 0 && e.EndedMS < oldest
		})
		if err := c.print(a, inOrder(fresh), false); err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		newest = max(newest, latest(found))
		// A read ends with a page, so the next one can reach further back.
		if len(seen) > 2*followLimit {
			seen = map[string]bool{}
		}
		maps.Copy(seen, idsOf(found))
	}
}

// inOrder returns the changes that have ended, the newest last.
func inOrder(found []api.AuditedChange) (all []api.AuditedChange) {
	for _, e := range slices.Backward(found) {
		if e.Outcome != audit.OutcomeUnderWay {
			all = append(all, e)
		}
	}
	return all
}

// lastOf returns the last limit changes that have ended, the newest last.
func lastOf(found []api.AuditedChange, limit int) []api.AuditedChange {
	all := inOrder(found)
	return all[max(0, len(all)-limit):]
}

// latest returns the time at which the last change ended.
func latest(found []api.AuditedChange) (ms int64) {
	for i := range found {
		ms = max(ms, found[i].EndedMS)
	}
	return ms
}

// idsOf returns the ids of the changes that have ended.
func idsOf(found []api.AuditedChange) map[string]bool {
	ids := make(map[string]bool, len(found))
	for i := range found {
		if found[i].Outcome != audit.OutcomeUnderWay {
			ids[found[i].ID] = true
		}
	}
	return ids
}

// read returns up to limit changes, the newest first, that began at since or later. It may end
// behind a change that ended before from.
func (c *auditCmd) read(a *app, limit int, since, from int64) (all []api.AuditedChange, err error) {
	query := url.Values{}
	for name, value := range map[string]string{
		"name": c.Name, "role": c.Role, "tenant": c.Tenant, "call": c.Call, "target": c.Target, "outcome": c.Outcome,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if since > 0 {
		query.Set("since_ms", strconv.FormatInt(since, 10))
	}
	for len(all) < limit {
		query.Set("limit", strconv.Itoa(min(limit-len(all), maxPage)))
		var page api.AuditPage
		if err := a.call(http.MethodGet, "/v1/audit", query, nil, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Entries...)
		if n := len(page.Entries); page.Cursor == "" || n > 0 && page.Entries[n-1].EndedMS > 0 &&
			page.Entries[n-1].EndedMS < from {
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

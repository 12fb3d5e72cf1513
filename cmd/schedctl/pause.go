package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/pool"
	"github.com/freeslot/freeslot/internal/selection"
)

type pauseFlags struct {
	Kind   string `arg:"" enum:"pool,service,class" help:"pool, service or class."`
	Name   string `arg:"" help:"Its name; of a class the id, which list and queues show."`
	Note   string `placeholder:"TEXT" help:"Why, for the history."`
	Author string `env:"USER" placeholder:"NAME" help:"Who, for the history (default: the user of this shell)."`
}

type pauseCmd struct{ pauseFlags }

// Help is shown below the flags.
func (pauseCmd) Help() string {
	return `No new job begins of a service or a class, or on the nodes of a pool by way of it, until resume; what runs goes on, and
jobs that come wait. It is a version of the configuration, which "config history" lists. Examples:
  schedctl pause service asr --note "wrong model"
  schedctl pause pool eu
  schedctl pause class 5f1d7a84db00d2fc
Ends with exit code 1 where a replica did not say in time that it goes by it.`
}

// Run pauses.
func (c *pauseCmd) Run(a *app) error { return c.change(a, "pause") }

type resumeCmd struct{ pauseFlags }

// Run ends a pause.
func (c *resumeCmd) Run(a *app) error { return c.change(a, "resume") }

func (c *pauseFlags) change(a *app, action string) error {
	defer a.api.close()
	plural := map[string]string{"pool": "pools", "service": "services", "class": "classes"}[c.Kind]
	content, err := json.Marshal(pool.PauseRequest{Note: c.Note, Author: c.Author})
	if err != nil {
		return err
	}
	var result pool.PauseResult
	if err := a.api.call(a.ctx, http.MethodPost, "/v1/"+plural+"/"+url.PathEscape(c.Name)+"/"+action, nil, content, 0, &result); err != nil {
		return explain(err)
	}
	if a.json {
		if err := a.printJSON(result); err != nil {
			return err
		}
	} else {
		_, _ = fmt.Fprintln(a.out, clean(pauseText(&result)))
	}
	if action == "pause" && result.Nodes != nil && *result.Nodes == 0 {
		is := map[string]string{"pool": "is in", "service": "has"}[c.Kind]
		_, _ = fmt.Fprintf(a.err, "schedctl: no node is known that %s %s %s\n", is, c.Kind, clean(c.Name))
	}
	if action == "pause" && !result.Confirmed {
		return fmt.Errorf("it is not known that all replicas go by it, so jobs may still begin: %s", clean(behindText(result.Behind)))
	}
	return nil
}

func pauseText(r *pool.PauseResult) string {
	is := map[bool]string{true: "paused", false: "not paused"}[r.Paused]
	if r.Unchanged && !r.Paused {
		return fmt.Sprintf("%s %s was not paused, so nothing is resumed; the configuration is at version %d", r.Kind, r.Name, r.Version)
	}
	if r.Unchanged {
		return fmt.Sprintf("%s %s is %s, as it was before; the configuration is at version %d", r.Kind, r.Name, is, r.Version)
	}
	return fmt.Sprintf("%s %s is %s as of version %d of the configuration", r.Kind, r.Name, is, r.Version)
}

func behindText(replicas []string) string {
	if len(replicas) == 0 {
		return "Redis did not say which"
	}
	return strings.Join(replicas, " ") + " did not answer in time, or are of a release that knows no pauses"
}

type queuesCmd struct{}

// Help is shown below the flags.
func (queuesCmd) Help() string {
	return `Jobs of a class fit the same nodes. FITS is how many nodes fit, whatever they do now; "schedctl explain" says what
speaks against each, and "schedctl list --class" lists the jobs. Jobs that a limit holds back are in no queue: which
limits that are is shown below.`
}

// Run lists what waits.
func (queuesCmd) Run(a *app) error {
	defer a.api.close()
	var list api.QueueList
	if err := a.api.call(a.ctx, http.MethodGet, "/v1/queues", nil, nil, 0, &list); err != nil {
		return explain(err)
	}
	if a.json {
		return a.printJSON(list)
	}
	rows := [][]string{{"CLASS", "SERVICE", "WAITING", "OLDEST", "FITS", "PAUSED", "REQUIREMENT"}}
	for _, q := range list.Queues {
		rows = append(rows, []string{
			q.Class, dash(q.Service), fmt.Sprint(q.Waiting), ago(q.OldestMS), fmt.Sprint(q.Fits), pausedText(&q), shorten(requirementText(&q), maxDetail),
		})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	if len(list.Held) > 0 {
		rows := [][]string{{"HELD BY", "TENANT", "LIMIT", "RUNNING", "HELD", "NEXT"}}
		for _, h := range list.Held {
			rows = append(rows, []string{h.By, h.Tenant, fmt.Sprint(h.Limit), fmt.Sprint(h.Running), fmt.Sprint(h.Held), h.First})
		}
		_, _ = fmt.Fprintln(a.out)
		if err := table(a.out, rows); err != nil {
			return err
		}
	}
	for _, what := range pausedNames(list.AllPaused) {
		_, _ = fmt.Fprintln(a.out, clean("paused: "+what))
	}
	if len(list.Unreachable) > 0 {
		_, _ = fmt.Fprintf(a.err, "schedctl: cells that did not answer, whose jobs are not counted: %v\n", list.Unreachable)
	}
	return nil
}

func pausedText(q *api.QueueStatus) string {
	switch {
	case q.PausedBy != "":
		return q.PausedBy
	case q.Paused:
		return "pools"
	case q.PausedNodes > 0:
		return fmt.Sprintf("%d of its nodes", q.PausedNodes)
	default:
		return "-"
	}
}

func requirementText(q *api.QueueStatus) string {
	if q.Unreadable {
		return "of another release"
	}
	text, err := json.Marshal(q.Requirement)
	if err != nil || string(text) == "{}" {
		return "-"
	}
	return string(text)
}

func pausedNames(p *selection.Paused) (names []string) {
	if p == nil {
		return nil
	}
	for _, list := range []struct {
		kind  string
		names []string
	}{{"pool", p.Pools}, {"service", p.Services}, {"class", p.Classes}} {
		for _, name := range list.names {
			names = append(names, list.kind+" "+name)
		}
	}
	return names
}

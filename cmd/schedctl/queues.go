package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/selection"
)

type queuesCmd struct{}

// Help is shown below the flags.
func (queuesCmd) Help() string {
	return `Jobs of a class fit the same nodes. FITS is how many nodes fit, busy or not; "schedctl explain" shows what speaks
against each node, and "schedctl list --class" lists the jobs. Jobs that a limit holds back are in no queue; these limits
come below.`
}

// Run lists the queues.
func (queuesCmd) Run(a *app) error {
	var list api.QueueList
	if err := a.call(http.MethodGet, "/v1/queues", nil, nil, &list); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(list)
	}
	rows := [][]string{{"CLASS", "SERVICE", "WAITING", "OLDEST", "FITS", "PAUSED", "REQUIREMENT"}}
	for _, q := range list.Queues {
		rows = append(rows, []string{
			q.Class, dash(q.Service), fmt.Sprint(q.Waiting), ago(q.OldestMS), fmt.Sprint(q.Fits), pausedText(&q),
			shorten(requirementText(&q), maxDetail),
		})
	}
	if err := table(a.out, rows); err != nil {
		return err
	}
	if len(list.Held) > 0 {
		rows := [][]string{{"HELD BY", "TENANT", "LIMIT", "RUNNING", "HELD", "NEXT"}}
		for _, h := range list.Held {
			rows = append(
				rows, []string{h.By, h.Tenant, fmt.Sprint(h.Limit), fmt.Sprint(h.Running), fmt.Sprint(h.Held), h.First},
			)
		}
		_, _ = fmt.Fprintln(a.out)
		if err := table(a.out, rows); err != nil {
			return err
		}
	}
	for _, what := range pausedNames(list.AllPaused) {
		_ = a.println("paused: %s", what)
	}
	a.warnCells(list.Unreachable)
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

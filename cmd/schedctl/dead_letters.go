package main

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/api"
	"github.com/freeslot/freeslot/internal/plural"
)

type deadLettersCmd struct {
	jobFilter
	Group []string `enum:"service,code,node,tenant" default:"service,code" placeholder:"PROPERTY" help:"By what to group: service, code, node or tenant; several with commas (default ${default})."`
}

// Help is shown below the flags.
func (deadLettersCmd) Help() string {
	return `Counts the newest dead jobs, at most 5000, by what they have in common. Examples:
  schedctl dead-letters
  schedctl dead-letters --since 1h --group node
  schedctl list --state dead --service tts --code handler_error`
}

// Run counts dead jobs.
func (c *deadLettersCmd) Run(a *app) error {
	if c.Class != "" || c.Schedule != "" {
		return usage("dead-letters takes no --class and no --schedule; schedctl list --state dead does")
	}
	query := c.query("")
	query.Set("group", strings.Join(c.Group, ","))
	var found api.DeadLetters
	if err := a.call(http.MethodGet, "/v1/dead-letters", query, nil, &found); err != nil {
		return err
	}
	a.warnCells(found.Unreachable)
	if a.json {
		return a.printJSON(found)
	}
	if err := table(a.out, deadRows(found.Groups, c.Group)); err != nil {
		return err
	}
	return a.println(
		"%s looked at, all that died since %s", plural.Of(found.LookedAt, "dead job", "dead jobs"), clock(found.SinceMS),
	)
}

func deadRows(groups []api.DeadGroup, by []string) [][]string {
	head := []string{"JOBS"}
	for _, name := range by {
		head = append(head, strings.ToUpper(name))
	}
	rows := [][]string{append(head, "LAST", "JOB")}
	for _, g := range groups {
		row := []string{fmt.Sprint(g.Jobs)}
		for _, name := range by {
			value := map[string]string{"service": g.Service, "code": g.Code, "node": g.Node, "tenant": g.Tenant}[name]
			row = append(row, dash(value))
		}
		rows = append(rows, slices.Concat(row, []string{clock(g.LastMS), g.LastJob}))
	}
	return rows
}

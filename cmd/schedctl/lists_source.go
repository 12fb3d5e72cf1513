package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/freeslot/freeslot/internal/namelist/server"
	"github.com/freeslot/freeslot/internal/namelist/source"
)

type listsSourceCmd struct {
	Ls    sourceLsCmd    `cmd:"" help:"List the sources of the replica that answers, and the lists that have one."`
	Show  sourceShowCmd  `cmd:"" help:"Show a list's source and its last runs."`
	Set   sourceSetCmd   `cmd:"" help:"Give a list a source. Each run replaces the list's ids, by the rules of an import."`
	Unset sourceUnsetCmd `cmd:"" help:"Take a list's source away. Its ids stay."`
	Run   sourceRunCmd   `cmd:"" help:"Run a list's source now."`
}

type sourceLsCmd struct{}

// Run lists sources.
func (sourceLsCmd) Run(a *app) error {
	var out server.ListSources
	if err := a.call(http.MethodGet, "/v1/list-sources", nil, nil, &out); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(out)
	}
	_ = a.println("sources of this replica: %s", dash(strings.Join(out.Sources, ", ")))
	rows := [][]string{{"LIST", "SOURCE", "WHEN", "NEXT", "LAST", "RESULT"}}
	for i := range out.Lists {
		l := &out.Lists[i]
		last := source.Run{}
		if len(l.Runs) > 0 {
			last = l.Runs[0]
		}
		rows = append(rows, []string{
			l.List, l.Source, whenOf(l), clock(l.NextMS), clock(last.AtMS), shorten(resultOf(&last), maxDetail),
		})
	}
	return table(a.out, rows)
}

func whenOf(l *server.ListSource) string {
	if l.Cron == "" {
		return "when asked"
	}
	return strings.TrimSpace(l.Cron + " " + l.TimeZone)
}

func resultOf(r *source.Run) string {
	if r.Why == "" {
		return dash(string(r.Result))
	}
	return string(r.Result) + ": " + r.Why
}

type sourceShowCmd struct{ oneList }

// Run shows a list's source.
func (c *sourceShowCmd) Run(a *app) error {
	var l server.ListSource
	if err := a.call(http.MethodGet, c.path()+"/source", nil, nil, &l); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(l)
	}
	_ = a.println("list %s comes from source %s, %s; next run %s", l.List, l.Source, whenOf(&l), clock(l.NextMS))
	if l.Running != nil {
		_ = a.println("a run goes on since %s on replica %s", clock(l.Running.AtMS), l.Running.Replica)
	}
	if !l.Here {
		a.warn("the replica that answers does not have source %s in its configuration", l.Source)
	}
	rows := [][]string{{"BEGAN", "TOOK", "ROWS", "VERSION", "REPLICA", "RESULT"}}
	for i := range l.Runs {
		r := &l.Runs[i]
		version := "-"
		if r.Version > 0 {
			version = fmt.Sprint(r.Version)
		}
		rows = append(rows, []string{
			clock(r.AtMS), age(r.TookMS).String(), fmt.Sprint(r.Rows), version, r.Replica, shorten(resultOf(r), maxDetail),
		})
	}
	return table(a.out, rows)
}

type sourceSetCmd struct {
	oneList
	Source   string `arg:"" help:"Name of the source, below lists.sources of the schedulers' configuration."`
	Every    string `placeholder:"CRON" help:"When it runs: @hourly, '30 4 * * *' or '@every 10m'. Without it only when asked."`
	TimeZone string `placeholder:"ZONE" help:"Of --every, such as Europe/Berlin. Default UTC."`
	whyFlags
}

// Run sets a list's source.
func (c *sourceSetCmd) Run(a *app) error {
	body := server.ListSourceSpec{Source: c.Source, Cron: c.Every, TimeZone: c.TimeZone, ByWhom: c.by()}
	var l server.ListSource
	if err := a.call(http.MethodPut, c.path()+"/source", nil, body, &l); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(l)
	}
	return a.println("list %s comes from source %s, %s; next run %s", l.List, l.Source, whenOf(&l), clock(l.NextMS))
}

type sourceUnsetCmd struct{ oneList }

// Run takes a list's source away.
func (c *sourceUnsetCmd) Run(a *app) error {
	return a.done(a.call(http.MethodDelete, c.path()+"/source", nil, nil, nil), "list %s has no source any more", c.List)
}

type sourceRunCmd struct{ oneList }

// Run has a list's source run now.
func (c *sourceRunCmd) Run(a *app) error {
	return a.done(
		a.call(http.MethodPost, c.path()+"/source/run", nil, nil, nil),
		"the source of list %s runs now; schedctl lists source show %s tells how it ends", c.List, c.List,
	)
}

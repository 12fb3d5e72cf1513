package main

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot/internal/history"
)

type historyCmd struct {
	Since  string   `placeholder:"DURATION" default:"15m" help:"How far back, up to 24h; up to 2160h (90 days) where the replica has console.prometheus_url."`
	Step   string   `placeholder:"STEP" enum:"2s,10s,1m," default:"" help:"The time between two points: 2s reaches back 15m, 10s 3h, 1m 24h (default: the finest that reaches)."`
	Series []string `placeholder:"NAME" help:"Only these series, such as waiting,slots_used."`
}

// Help is shown below the flags.
func (historyCmd) Help() string {
	return `The figures of all replicas together. NOW is the newest value, the line shows all of them, the newest at the right and
each column the highest of its time; a blank is a time of which nothing is known.`
}

// Run shows the figures of the system over time.
func (c *historyCmd) Run(a *app) error {
	query := url.Values{"since": {c.Since}}
	if c.Step != "" {
		query.Set("step", c.Step)
	}
	var t history.HistoryTable
	if err := a.call(http.MethodGet, "/v1/history", query, nil, &t); err != nil {
		return err
	}
	for _, name := range c.Series {
		if !slices.Contains(t.Columns, name) {
			return usage("--series %s is unknown, expected of %s", name, strings.Join(t.Columns[1:], ", "))
		}
	}
	if a.json {
		return a.printJSON(t)
	}
	rows := [][]string{{"SERIES", "NOW", "LOW", "HIGH", "THE LAST " + strings.ToUpper(c.Since)}}
	for i, name := range t.Columns {
		if i == 0 || len(c.Series) > 0 && !slices.Contains(c.Series, name) {
			continue
		}
		values := make([]history.Figure, len(t.Rows))
		for j, row := range t.Rows {
			if i < len(row) {
				values[j] = row[i]
			}
		}
		rows = append(rows, historyRow(name, values))
	}
	return table(a.out, rows)
}

func historyRow(name string, values []history.Figure) []string {
	var known []float64
	for _, v := range values {
		if v != nil {
			known = append(known, *v)
		}
	}
	if len(known) == 0 {
		return []string{name, "-", "-", "-", ""}
	}
	now, high := "-", slices.Max(known)
	if last := values[len(values)-1]; last != nil {
		now = number(*last)
	}
	return []string{name, now, number(slices.Min(known)), number(high), sparkLine(columnsOf(values), high)}
}

// number shows few digits: a table is for people.
func number(v float64) string {
	if v >= 1e6 {
		return fmt.Sprintf("%.2fM", v/1e6)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// columnsOf returns the highest value of each column of a spark line, -1 for a column without a
// known value.
func columnsOf(values []history.Figure) []float64 {
	width := (len(values) + sparkWidth - 1) / sparkWidth
	var columns []float64
	// From the newest on, so that the last column is a whole one.
	for end := len(values); end > 0; end -= width {
		most := -1.0
		for _, v := range values[max(end-width, 0):end] {
			if v != nil {
				most = max(most, *v)
			}
		}
		columns = append(columns, most)
	}
	slices.Reverse(columns)
	return columns
}

package main

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/freeslot/freeslot/internal/namelist/server"
)

type chainStatsCmd struct {
	oneChain
	statsWindow
}

// Run shows what a chain has decided, and what a shadow has decided beside.
func (c *chainStatsCmd) Run(a *app) error {
	var s server.ChainStatistics
	if err := a.call(http.MethodGet, c.path()+"/statistics", c.query(), nil, &s); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s)
	}
	rows := [][]string{{
		"RULE", "DECISIONS", "SHARE", "ALLOW", "DENY", "VARIANT", "UNKNOWN", "SHADOW SAME", "DIFFERENT", "UNDECIDED",
	}}
	names := slices.SortedFunc(maps.Keys(s.Rules), func(x, y string) int {
		if more := int64(s.Rules[y].Decisions) - int64(s.Rules[x].Decisions); more != 0 {
			return int(min(1, max(-1, more)))
		}
		return strings.Compare(x, y)
	})
	for _, name := range names {
		rows = append(rows, decisionsRow(name, s.Rules[name], s.Decisions))
	}
	if err := table(a.out, append(rows, decisionsRow("all", s.ChainCounts, s.Decisions))); err != nil {
		return err
	}
	points := make([]sparkPoint, len(s.Points))
	for i := range s.Points {
		points[i] = sparkPoint{s.Points[i].AtMS, s.Points[i].Decisions}
	}
	columns, most, width := spark(points, s.AtMS, s.StepMS, c.Since)
	return a.println("\ndecisions, %s a column, at most %d\n%s", width, most, columns)
}

func decisionsRow(name string, c server.ChainCounts, all uint64) []string {
	share := "-"
	if all > 0 {
		share = fmt.Sprintf("%.2f %%", 100*float64(c.Decisions)/float64(all))
	}
	row := []string{name, fmt.Sprint(c.Decisions), share}
	for _, n := range []uint64{
		c.Allow, c.Deny, c.Variant, c.Unknown, c.Shadow.Same, c.Shadow.Different, c.Shadow.Undecided,
	} {
		row = append(row, fmt.Sprint(n))
	}
	return row
}

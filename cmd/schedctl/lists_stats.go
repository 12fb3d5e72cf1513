package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/freeslot/freeslot/internal/namelist/server"
)

type listsStatsCmd struct {
	oneList
	Since       time.Duration `placeholder:"DURATION" default:"24h" least:"1m" help:"How far back, up to 2160h (90 days)."`
	Step        string        `placeholder:"STEP" enum:"minute,hour," default:"" help:"What a column of the line stands for at least: minute or hour (default: minute up to 6h, then hour). Minutes go back a day."`
	Application string        `placeholder:"NAME" help:"Only this application, such as TENANT/TOKEN."`
}

// sparkWidth is the number of columns of a spark line.
const sparkWidth = 60

// Run shows how often a list was asked.
func (c *listsStatsCmd) Run(a *app) error {
	query := url.Values{"since_ms": {fmt.Sprint(c.Since.Milliseconds())}}
	for name, value := range map[string]string{"step": c.Step, "application": c.Application} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var s server.ListStatistics
	if err := a.call(http.MethodGet, c.path()+"/statistics", query, nil, &s); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(s)
	}
	rows := [][]string{{
		"APPLICATION", "LOOKUPS", "HITS", "MISSES", "UNKNOWN", "HIT RATE", "FALSE POSITIVES", "CALLS", "MEAN TIME",
	}}
	names := slices.SortedFunc(maps.Keys(s.Applications), func(x, y string) int {
		if more := int64(s.Applications[y].Lookups) - int64(s.Applications[x].Lookups); more != 0 {
			return int(min(1, max(-1, more)))
		}
		return strings.Compare(x, y)
	})
	for _, name := range names {
		rows = append(rows, countsRow(name, s.Applications[name]))
	}
	if err := table(a.out, append(rows, countsRow("all", s.ListCounts))); err != nil {
		return err
	}
	if err := c.details(a, &s); err != nil {
		return err
	}
	columns, most, width := spark(&s, c.Since)
	return a.println("\nlookups, %s a column, at most %d\n%s", width, most, columns)
}

func countsRow(name string, c server.ListCounts) []string {
	rate := "-"
	if c.Hits+c.Misses > 0 {
		rate = fmt.Sprintf("%.2f %%", 100*c.HitRate)
	}
	mean := "-"
	if c.RemoteCalls > 0 {
		mean = (time.Duration(c.RemoteMeanUS) * time.Microsecond).String()
	}
	return []string{
		name, fmt.Sprint(c.Lookups), fmt.Sprint(c.Hits), fmt.Sprint(c.Misses), fmt.Sprint(c.Unknown), rate,
		fmt.Sprint(c.FalsePositives), fmt.Sprint(c.RemoteCalls), mean,
	}
}

// details prints where answers came from, and why others are unknown.
func (c *listsStatsCmd) details(a *app, s *server.ListStatistics) error {
	for _, part := range []struct {
		title  string
		counts map[string]uint64
	}{{"answers", s.Sources}, {"unknown", s.UnknownBy}, {"calls", s.RemoteBy}} {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(part.counts)) {
			texts = append(texts, fmt.Sprintf("%s %d", strings.ReplaceAll(name, "_", " "), part.counts[name]))
		}
		if len(texts) == 0 {
			continue
		}
		if err := a.println("%s: %s", part.title, strings.Join(texts, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// spark draws the lookups over the time, the newest at the right. most is the highest column, width
// the time of one.
func spark(s *server.ListStatistics, since time.Duration) (columns string, most uint64, width time.Duration) {
	step := time.Duration(s.StepMS) * time.Millisecond
	steps := int((since + step - 1) / step)
	width = step * time.Duration((steps+sparkWidth-1)/sparkWidth)
	sums := make([]uint64, (steps+int(width/step)-1)/int(width/step))
	for _, p := range s.Points {
		back := int(time.Duration(s.AtMS-p.AtMS) * time.Millisecond / width)
		if i := len(sums) - 1 - back; i >= 0 && back >= 0 {
			sums[i] += p.Lookups
			most = max(most, sums[i])
		}
	}
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var out strings.Builder
	for _, n := range sums {
		level := 0
		if n > 0 {
			level = 1 + int(float64(n)/float64(most)*float64(len(levels)-2))
		}
		out.WriteRune(levels[level])
	}
	return out.String(), most, width
}

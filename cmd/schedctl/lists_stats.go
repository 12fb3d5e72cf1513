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

// statsWindow says which time statistics are of.
type statsWindow struct {
	Since time.Duration `placeholder:"DURATION" default:"24h" least:"1m" help:"How far back, such as 7d; up to 90d."`
	Step  string        `placeholder:"STEP" enum:"minute,hour," default:"" help:"What a column of the line stands for at least: minute or hour (default: minute up to 6h, then hour). Minutes go back a day."`
}

func (w *statsWindow) query() url.Values {
	query := url.Values{"since_ms": {fmt.Sprint(w.Since.Milliseconds())}}
	if w.Step != "" {
		query.Set("step", w.Step)
	}
	return query
}

type listsStatsCmd struct {
	oneList
	statsWindow
	Application string `placeholder:"NAME" help:"Only this application, such as TENANT/TOKEN."`
}

// sparkWidth is the number of columns of a spark line.
const sparkWidth = 60

// Run shows how often a list was asked.
func (c *listsStatsCmd) Run(a *app) error {
	query := c.query()
	if c.Application != "" {
		query.Set("application", c.Application)
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
	points := make([]sparkPoint, len(s.Points))
	for i, p := range s.Points {
		points[i] = sparkPoint{p.AtMS, p.Lookups}
	}
	columns, most, width := spark(points, s.AtMS, s.StepMS, c.Since)
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

// sparkPoint is what was counted from a time on.
type sparkPoint struct {
	atMS int64
	n    uint64
}

// spark draws points over the time, the newest at the right. most is the highest column, width the
// time of one.
func spark(points []sparkPoint, atMS, stepMS int64, since time.Duration) (
	columns string, most uint64, width time.Duration,
) {
	step := time.Duration(stepMS) * time.Millisecond
	steps := int((since + step - 1) / step)
	width = step * time.Duration((steps+sparkWidth-1)/sparkWidth)
	sums := make([]uint64, (steps+int(width/step)-1)/int(width/step))
	for _, p := range points {
		back := int(time.Duration(atMS-p.atMS) * time.Millisecond / width)
		if i := len(sums) - 1 - back; i >= 0 && back >= 0 {
			sums[i] += p.n
			most = max(most, sums[i])
		}
	}
	values := make([]float64, len(sums))
	for i, n := range sums {
		if values[i] = float64(n); n == 0 {
			values[i] = -1 // no lookup is a blank
		}
	}
	return sparkLine(values, float64(most)), most, width
}

// sparkLine draws values from 0 to most; a negative one is a blank.
func sparkLine(values []float64, most float64) string {
	levels := []rune("▁▂▃▄▅▆▇█")
	var out strings.Builder
	for _, v := range values {
		switch {
		case v < 0:
			out.WriteRune(' ')
		case most <= 0:
			out.WriteRune(levels[0])
		default:
			out.WriteRune(levels[min(int(v/most*float64(len(levels)-1)), len(levels)-1)])
		}
	}
	return out.String()
}

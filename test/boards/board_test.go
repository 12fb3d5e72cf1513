package boards

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const grafana = "../../deploy/grafana/"

var update = flag.Bool("update", false, "write the boards anew from boards.yaml")

// units are Grafana's names of the units that boards use.
var units = []string{"bytes", "ops", "percentunit", "reqps", "s", "short"}

var inLegend = regexp.MustCompile(`{{(\w+)}}`)

// TestBoards: each board is made from boards.yaml, its expressions parse and use only what exists,
// and each panel says what it shows, in which unit, with a legend of labels that its series have.
func TestBoards(t *testing.T) {
	t.Parallel()
	all, err := Boards([]byte(read(t, grafana+"boards.yaml")))
	if err != nil {
		t.Fatal(err)
	}
	known, types := reference(t)
	known["ALERTS"] = []string{"alertname", "alertstate"}
	files := []string{"boards.yaml"}
	for i := range all {
		b := &all[i]
		files = append(files, b.File+".json")
		compare(t, grafana+b.File+".json", b.JSON())
		for _, v := range b.Variables {
			if known[v.Value] == nil {
				t.Errorf("%s: variable %s offers jobs of %s, which no process declares", b.File, v.Key, v.Value)
			}
		}
		for _, row := range b.Rows {
			for _, p := range row.Panels {
				p.check(t, b, known, types)
			}
		}
	}
	there, err := filepath.Glob(grafana + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range there {
		if !slices.Contains(files, filepath.Base(file)) {
			t.Errorf("%s is there, and no board makes it", file)
		}
	}
}

func compare(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, file); got != string(want) {
		t.Errorf("%s is not what boards.yaml makes; run make boards", file)
	}
	if !json.Valid(want) {
		t.Errorf("%s is no JSON", file)
	}
}

func (p *Panel) check(t *testing.T, b *Board, known declared, types map[string]string) {
	t.Helper()
	at := b.File + ", " + p.Title
	if p.Title == "" || !strings.HasSuffix(p.About, ".") || !slices.Contains(units, p.Unit) || len(p.Queries) == 0 {
		t.Errorf("%s has no title, description, queries or one of the units %v", at, units)
	}
	for _, query := range p.Queries {
		text := strings.ReplaceAll(query.Value, "$__rate_interval", "5m")
		for _, v := range b.Variables {
			text = strings.ReplaceAll(text, "$"+v.Key+`"`, v.Key+`"`)
		}
		q, err := Parse(text)
		if err != nil || strings.Contains(text, "$") {
			t.Errorf("%s: %s: %v; want an expression with known variables", at, query.Value, err)
			continue
		}
		if missing := known.missing(&q); missing != nil {
			t.Errorf("%s uses %v, which no process declares", at, missing)
		}
		for _, label := range inLegend.FindAllStringSubmatch(query.Key, -1) {
			if !p.shows(&q, known, label[1]) {
				t.Errorf("%s: legend %q has label %s, which its series have not", at, query.Key, label[1])
			}
		}
		for _, use := range q.Uses {
			if p.Unit == "ops" && types[use.Metric] == "gauge" {
				t.Errorf("%s shows the gauge %s in operations a second", at, use.Metric)
			}
			if types[Base(use.Metric)] == "histogram" && Base(use.Metric) == use.Metric {
				t.Errorf("%s uses the histogram %s as a series", at, use.Metric)
			}
		}
	}
}

// shows reports whether series of the query have a label: one that an aggregation keeps, or where
// there is none, one that the metric has.
func (p *Panel) shows(q *Query, known declared, label string) bool {
	if q.Aggregates {
		return slices.Contains(q.Kept, label)
	}
	return slices.ContainsFunc(q.Uses, func(u Use) bool {
		return slices.Contains(ofTarget, label) || slices.Contains(known[u.Metric], label) ||
			slices.Contains(known[Base(u.Metric)], label)
	})
}

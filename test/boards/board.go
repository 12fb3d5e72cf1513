package boards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Board is one board of deploy/grafana/boards.yaml.
type Board struct {
	// File is the name of its JSON file without .json.
	File, Title, About string
	// Variables has the variables of the board by name: each offers the jobs whose targets have this
	// metric.
	Variables Ordered
	Rows      []Row
}

// Row is a headline with panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Panel shows series.
type Panel struct {
	Title, About string
	// Kind is timeseries if it is empty, or stat for one number.
	Kind string
	// Unit is one of Grafana's.
	Unit string
	// Width is of 24; 0 means a third of the row.
	Width int
	// Alarm is the value from which on a number is red; 0 means never.
	Alarm float64
	// Queries has an expression for each legend.
	Queries Ordered
}

// Ordered is a map of texts in the order of the file.
type Ordered []struct{ Key, Value string }

// UnmarshalYAML implements yaml.Unmarshaler.
func (o *Ordered) UnmarshalYAML(node *yaml.Node) error {
	if node.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d is no mapping", node.Line)
	}
	for pair := range slices.Chunk(node.Content, 2) {
		*o = append(*o, struct{ Key, Value string }{pair[0].Value, pair[1].Value})
	}
	return nil
}

// Boards reads the boards of a file. Unknown keys are errors.
func Boards(text []byte) (all []Board, err error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&all); err != nil {
		return nil, err
	}
	for i := range all {
		for j := range all[i].Rows {
			for k := range all[i].Rows[j].Panels {
				queries := all[i].Rows[j].Panels[k].Queries
				for q := range queries {
					queries[q].Value = strings.ReplaceAll(queries[q].Value, "RATE)", "[$__rate_interval])")
				}
			}
		}
	}
	return all, nil
}

const (
	wide, third  = 24, 8
	high, low    = 8, 4
	runbook      = "https://github.com/freeslot/freeslot/blob/main/docs/runbook.md"
	sourceOfData = "${datasource}"
)

type object map[string]any

var prometheus = object{"type": "prometheus", "uid": sourceOfData}

// JSON returns the board as Grafana imports it.
func (b *Board) JSON() []byte {
	variables := []object{{
		"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1,
	}}
	for _, v := range b.Variables {
		variables = append(variables, object{
			"name": v.Key, "label": v.Key, "type": "query", "datasource": prometheus, "refresh": 2, "sort": 1,
			"query":      object{"query": "label_values(" + v.Value + ", job)", "refId": v.Key},
			"definition": "label_values(" + v.Value + ", job)",
		})
	}
	board := object{
		"uid": "freeslot-" + b.File, "title": b.Title, "description": b.About, "tags": []string{"freeslot"},
		"schemaVersion": 39, "editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser",
		"time": object{"from": "now-1h", "to": "now"}, "templating": object{"list": variables}, "panels": b.panels(),
		"links": []object{
			{
				"title": "freeslot boards", "type": "dashboards", "tags": []string{"freeslot"}, "asDropdown": true,
				"keepTime": true,
			},
			{"title": "Runbook", "type": "link", "url": runbook, "targetBlank": true},
		},
	}
	if b.File == "freeslot" {
		board["uid"] = "freeslot"
	}
	text, _ := json.MarshalIndent(board, "", "  ") // objects of texts and numbers always can be encoded
	return append(text, '\n')
}

func (b *Board) panels() (all []object) {
	y := 0
	add := func(p object, width, height, x int) {
		p["id"], p["gridPos"] = len(all)+1, object{"x": x, "y": y, "w": width, "h": height}
		all = append(all, p)
	}
	for _, row := range b.Rows {
		add(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []object{}}, wide, 1, 0)
		y++
		x, height := 0, high
		for i := range row.Panels {
			p := &row.Panels[i]
			width := p.Width
			if width == 0 {
				width = third
			}
			if x+width > wide {
				x, y = 0, y+height
			}
			height = high
			if p.Kind == "stat" {
				height = low
			}
			add(p.json(), width, height, x)
			x += width
		}
		y += height
	}
	return all
}

func (p *Panel) json() object {
	var targets []object
	for i, q := range p.Queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": prometheus, "expr": q.Value, "legendFormat": q.Key, "exemplar": true,
		})
	}
	steps := []object{{"color": "green", "value": nil}}
	if p.Alarm > 0 {
		steps = append(steps, object{"color": "red", "value": p.Alarm})
	}
	defaults := object{"unit": p.Unit, "min": 0, "thresholds": object{"mode": "absolute", "steps": steps}}
	panel := object{
		"type": "timeseries", "title": p.Title, "description": p.About, "datasource": prometheus, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []object{}},
	}
	if p.Kind == "stat" {
		panel["type"] = "stat"
		panel["options"] = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value", "graphMode": "area",
		}
		return panel
	}
	defaults["custom"] = object{"fillOpacity": 10, "showPoints": "never"}
	panel["options"] = object{
		"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"},
	}
	return panel
}

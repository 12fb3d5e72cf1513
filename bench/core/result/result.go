// Package result is what bench/core writes and what bench/report reads: its JSON, and its part of the report.
package result

import (
	"cmp"
	"slices"

	"github.com/freeslot/freeslot/bench/measure"
)

// Results is the JSON file: the last run of each scenario.
type Results struct {
	Scenarios []Scenario `json:"scenarios"`
}

// Scenario is one run of one scenario.
type Scenario struct {
	Name string `json:"name"`
	measure.Machine
	// Redis is empty where none took part.
	Redis string `json:"redis,omitempty"`
	// Durability is how that Redis kept its data.
	Durability string `json:"durability,omitempty"`
	// Short is true for a run that only shows that the scenario works.
	Short   bool    `json:"short,omitempty"`
	Seconds float64 `json:"seconds"`
	// Method says in words what was done.
	Method  []string `json:"method"`
	Targets []Target `json:"targets,omitempty"`
	Tables  []Table  `json:"tables,omitempty"`
}

// Bound is how a measured value is held against its limit.
type Bound string

// The bounds.
const (
	AtMost  Bound = "at most"
	AtLeast Bound = "at least"
	Exactly Bound = "exactly"
)

// Target is one promise and what was measured of it.
type Target struct {
	What     string  `json:"what"`
	Unit     Unit    `json:"unit"`
	Bound    Bound   `json:"bound"`
	Limit    float64 `json:"limit"`
	Measured float64 `json:"measured"`
}

// Met reports whether the target was reached.
func (t Target) Met() bool {
	switch t.Bound {
	case AtMost:
		return t.Measured <= t.Limit
	case AtLeast:
		return t.Measured >= t.Limit
	default:
		return t.Measured == t.Limit
	}
}

// Table has a name and as many values as columns in each row.
type Table struct {
	Title   string   `json:"title"`
	First   string   `json:"first"` // heading of the names
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
}

// Column is the heading and the unit of one value of each row.
type Column struct {
	Name string `json:"name"`
	Unit Unit   `json:"unit"`
}

// Row is one line of a table. A nil value was not measured.
type Row struct {
	Name   string     `json:"name"`
	Values []*float64 `json:"values"`
}

// Values makes the values of a row.
func Values(v ...float64) []*float64 {
	out := make([]*float64, len(v))
	for i := range v {
		out[i] = &v[i]
	}
	return out
}

// Put replaces the scenario of that name, or adds it.
func (r *Results) Put(s Scenario) {
	i := slices.IndexFunc(r.Scenarios, func(have Scenario) bool { return have.Name == s.Name })
	if i < 0 {
		r.Scenarios = append(r.Scenarios, s)
		return
	}
	r.Scenarios[i] = s
}

// Sort puts the scenarios into the order of names; others come last.
func (r *Results) Sort(names []string) {
	slices.SortStableFunc(r.Scenarios, func(a, b Scenario) int {
		return cmp.Compare(uint(slices.Index(names, a.Name)), uint(slices.Index(names, b.Name)))
	})
}

package registry

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/freeslot/freeslot"
	"github.com/freeslot/freeslot/internal/figure"
)

// Filter selects instances by their metadata and their metrics. It is immutable; nil means all.
type Filter struct {
	metadata []freeslot.LabelRule
	metrics  []figure.Comparison
}

// NewFilter makes a filter of rules, which must all hold: up to 32 for metadata, written as jobs
// write rules for labels, and up to 32 comparisons of metrics such as
//
//	cpu.usage < 0.8    disk.state == "read only"    gpu.count != 0
//
// A name is type.field: the type ends at the first dot. The operators are <, <=, >, >=, == and !=.
// A value with spaces stands in quotation marks. Numbers are compared as numbers; texts only by ==
// and !=. A figure that is missing, or is not a number although the value is one, fails every
// comparison except !=. The error names all bad terms: metadata[i] and metrics[i].
func NewFilter(metadata []freeslot.LabelRule, metrics []string) (*Filter, error) {
	var bad freeslot.FieldErrors
	limit := func(field string, n int) {
		if n > freeslot.MaxLabelRules {
			bad.Addf(field, "has %d entries, expected at most %d", n, freeslot.MaxLabelRules)
		}
	}
	limit("metadata", len(metadata))
	limit("metrics", len(metrics))
	f := &Filter{metadata: metadata}
	for i := range metadata {
		bad.Add(metadata[i].Validate(at("metadata", i)))
	}
	for i, text := range metrics {
		c, err := figure.Parse(at("metrics", i), text)
		bad.Add(err)
		f.metrics = append(f.metrics, c)
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// Takes reports whether all rules hold for an instance.
func (f *Filter) Takes(i *Instance) bool {
	if f == nil {
		return true
	}
	if slices.ContainsFunc(f.metadata, func(r freeslot.LabelRule) bool { return !r.Holds(i.Metadata) }) {
		return false
	}
	if len(f.metrics) == 0 {
		return true
	}
	figures := figure.Flatten(i.Metrics)
	return !slices.ContainsFunc(f.metrics, func(c figure.Comparison) bool { return !c.Holds(figures) })
}

// forScript returns the filter as query.lua reads it.
func (f *Filter) forScript() ([]byte, error) {
	if f == nil {
		f = &Filter{}
	}
	return json.Marshal(struct {
		Metadata []freeslot.LabelRule `json:"metadata,omitempty"`
		Metrics  []figure.Comparison  `json:"metrics,omitempty"`
	}{f.metadata, f.metrics})
}

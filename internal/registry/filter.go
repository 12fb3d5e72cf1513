package registry

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// Filter takes instances by their metadata and their metrics. It is immutable; nil takes all.
type Filter struct {
	metadata []freeslot.LabelRule
	metrics  []comparison
}

// comparison is a term such as cpu.usage < 0.8.
type comparison struct {
	// Rules must all hold for the figures, by the names type.field; with Not they must not all
	// hold.
	Rules []freeslot.LabelRule `json:"rules"`
	Not   bool                 `json:"not"`
}

// term has the parts of a comparison: type.field, operator, value.
var term = regexp.MustCompile(`^\s*([^\s<>=!]*)\s*(<=|>=|==|!=|<|>)\s*(.*?)\s*$`)

// NewFilter makes a filter of rules, which must all hold: up to 32 for metadata, as jobs have them
// for labels, and up to 32 comparisons of metrics such as
//
//	cpu.usage < 0.8    disk.state == "read only"    gpu.count != 0
//
// A name is type.field: the type ends at the first dot. The operators are <, <=, >, >=, == and !=.
// A value with spaces stands in quotation marks. Numbers are compared as numbers; texts only by ==
// and !=. A figure that is missing, or no number where the value is one, fails every comparison but
// !=. The error names all bad terms: metadata[i] and metrics[i].
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
		c, err := parseComparison(at("metrics", i), text)
		bad.Add(err)
		f.metrics = append(f.metrics, c)
	}
	if err := bad.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func parseComparison(field, text string) (c comparison, err error) {
	parts := term.FindStringSubmatch(text)
	if parts == nil || parts[3] == "" {
		return c, freeslot.Invalid(field, "is %q, expected a comparison such as cpu.usage < 0.8", text)
	}
	name, operator, value := parts[1], parts[2], parts[3]
	kind, figure, _ := strings.Cut(name, ".")
	for _, part := range []string{kind, figure} {
		if freeslot.ValidateName(field, part) != nil {
			return c, freeslot.Invalid(field, "compares %q, expected type.field such as cpu.usage", name)
		}
	}
	if strings.HasPrefix(value, `"`) {
		if value, err = strconv.Unquote(value); err != nil {
			return c, freeslot.Invalid(field, "has the value %s, expected a quotation mark at its end", parts[3])
		}
	}
	rule := func(operator freeslot.LabelOperator) freeslot.LabelRule {
		return freeslot.LabelRule{Label: name, Operator: operator, Values: []string{value}}
	}
	number := rule(freeslot.LabelLessEqual)
	isNumber := number.Holds(map[string]string{name: value})
	switch {
	case operator != "==" && operator != "!=" && !isNumber:
		return c, freeslot.Invalid(field, "compares by %s with %q, expected a decimal number; texts are compared by == and !=", operator, value)
	case operator == "<":
		c.Rules = []freeslot.LabelRule{rule(freeslot.LabelLess)}
	case operator == "<=":
		c.Rules = []freeslot.LabelRule{number}
	case operator == ">":
		c.Rules = []freeslot.LabelRule{rule(freeslot.LabelGreater)}
	case operator == ">=":
		c.Rules = []freeslot.LabelRule{rule(freeslot.LabelGreaterEqual)}
	case isNumber: // 0.80 is 0.8
		c.Rules = []freeslot.LabelRule{rule(freeslot.LabelGreaterEqual), number}
	default:
		c.Rules = []freeslot.LabelRule{rule(freeslot.LabelIn)}
	}
	c.Not = operator == "!="
	return c, nil
}

// Takes reports whether all rules hold for an instance.
func (f *Filter) Takes(i *Instance) bool {
	if f == nil {
		return true
	}
	if !hold(f.metadata, i.Metadata) {
		return false
	}
	if len(f.metrics) == 0 {
		return true
	}
	figures := flatten(i.Metrics)
	for _, c := range f.metrics {
		if hold(c.Rules, figures) == c.Not {
			return false
		}
	}
	return true
}

func hold(rules []freeslot.LabelRule, labels map[string]string) bool {
	for i := range rules {
		if !rules[i].Holds(labels) {
			return false
		}
	}
	return true
}

// flatten returns the numbers and texts of metrics as type.field. What cannot be read is left out.
func flatten(metrics json.RawMessage) map[string]string {
	var types map[string]json.RawMessage
	if json.Unmarshal(metrics, &types) != nil {
		return nil
	}
	out := make(map[string]string)
	for kind, raw := range types {
		var fields map[string]any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber() // else 2^53+1 would change on the way
		if strings.Contains(kind, ".") || decoder.Decode(&fields) != nil {
			continue
		}
		for name, value := range fields {
			switch v := value.(type) {
			case string:
				out[kind+"."+name] = v
			case json.Number:
				out[kind+"."+name] = v.String()
			}
		}
	}
	return out
}

// forScript is what query.lua reads.
func (f *Filter) forScript() ([]byte, error) {
	if f == nil {
		f = &Filter{}
	}
	return json.Marshal(struct {
		Metadata []freeslot.LabelRule `json:"metadata,omitempty"`
		Metrics  []comparison         `json:"metrics,omitempty"`
	}{f.metadata, f.metrics})
}

package figure

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"

	"github.com/freeslot/freeslot"
)

// Comparison is a term such as cpu.usage < 0.8.
type Comparison struct {
	// Rules must all hold for the figures, which they name as type.field. With Not, at least one
	// must fail.
	Rules []freeslot.LabelRule `json:"rules"`
	Not   bool                 `json:"not"`
}

// term matches the parts of a comparison: type.field, operator, value.
var term = regexp.MustCompile(`^\s*([^\s<>=!]*)\s*(<=|>=|==|!=|<|>)\s*(.*?)\s*$`)

// Parse reads a comparison such as
//
//	cpu.usage < 0.8    disk.state == "read only"    gpu.count != 0
//
// A name is type.field: the type ends at the first dot. The operators are <, <=, >, >=, == and !=.
// A value with spaces stands in quotation marks. Numbers are compared as numbers; texts and bools
// only by == and !=. The error is a *freeslot.Error with code invalid_argument that names field.
func Parse(field, text string) (c Comparison, err error) {
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
		return c, freeslot.Invalid(
			field, "compares by %s with %q, expected a decimal number; texts are compared by == and !=", operator, value,
		)
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

// Holds reports whether the comparison holds for figures, which are named type.field. A missing
// figure fails every comparison except !=. So does a figure that is not a number if the value is
// one.
func (c *Comparison) Holds(figures map[string]string) bool {
	for i := range c.Rules {
		if !c.Rules[i].Holds(figures) {
			return c.Not
		}
	}
	return !c.Not
}

// Flatten returns the numbers, texts and bools of metrics as type.field. It leaves out values that
// it cannot read.
func Flatten(metrics json.RawMessage) map[string]string {
	var types map[string]json.RawMessage
	if json.Unmarshal(metrics, &types) != nil {
		return nil
	}
	out := make(map[string]string)
	for kind, raw := range types {
		var fields map[string]any
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.UseNumber() // otherwise 2^53+1 would change on the way
		if strings.Contains(kind, ".") || decoder.Decode(&fields) != nil {
			continue
		}
		for name, value := range fields {
			switch v := value.(type) {
			case string:
				out[kind+"."+name] = v
			case json.Number:
				out[kind+"."+name] = v.String()
			case bool:
				out[kind+"."+name] = strconv.FormatBool(v)
			}
		}
	}
	return out
}
